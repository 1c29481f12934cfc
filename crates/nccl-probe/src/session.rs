//! Recording in this process: when it begins, where the rings are, how it ends.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use deepxtrace_nccl_ring::{RingFile, Writer, ring_folder};

use crate::config::Config;
use crate::local::Local;
use crate::sys::{Lock, say, silence_panics};
use crate::{comms, library, pending, worker};

/// How long a process that ends waits for its last records to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether this process records.
static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// Guards the beginning.
static LOCK: Lock = Lock::new();

/// One process that records. Made once, never freed; a forked child makes its own.
pub struct Session {
    /// The file with the rings.
    pub file: RingFile,
    /// How it is recorded.
    pub config: Config,
    /// Calls so far.
    pub calls: AtomicU64,
    /// Groups so far.
    pub groups: AtomicU64,
    /// Rings whose thread is gone.
    free: Mutex<Vec<Writer>>,
    /// Whether the process is ending and the rings are to be written out.
    pub ending: AtomicBool,
    /// Whether that was done.
    pub ended: AtomicBool,
    worker: Mutex<Option<Thread>>,
}

impl Session {
    /// The session of this process, beginning it at the first call. `None` where this process is
    /// not recorded.
    pub fn current() -> Option<&'static Self> {
        match MODE.load(Acquire) {
            OFF => None,
            // SAFETY: null, or a leaked box.
            ON => unsafe { SESSION.load(Acquire).as_ref() },
            _ => Self::begin(),
        }
    }

    /// Whether it is known that this process is not recorded.
    #[inline]
    pub fn is_off() -> bool {
        MODE.load(Relaxed) == OFF
    }

    /// The session, if one has begun.
    pub fn begun() -> Option<&'static Self> {
        // SAFETY: null, or a leaked box.
        unsafe { SESSION.load(Acquire).as_ref() }
    }

    #[cold]
    fn begin() -> Option<&'static Self> {
        let _locked = LOCK.lock();
        if MODE.load(Acquire) != UNDECIDED {
            return Self::begun();
        }
        let made = Self::make();
        MODE.store(if made.is_some() { ON } else { OFF }, Release);
        made
    }

    fn make() -> Option<&'static Self> {
        silence_panics();
        let config = Config::read(|name| std::env::var_os(name))?;
        watch_forks();
        let folder = ring_folder();
        let file = match RingFile::create(&folder, config.slots, config.max_bytes, &config.identity)
        {
            Ok(file) => file,
            Err(error) => {
                say_off(&format!("no ring in {}: {error}", folder.display()));
                return None;
            }
        };
        let session: &'static Self = Box::leak(Box::new(Self {
            file,
            config,
            calls: AtomicU64::new(0),
            groups: AtomicU64::new(0),
            free: Mutex::new(Vec::new()),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            worker: Mutex::new(None),
        }));
        match worker::start(session) {
            Ok(thread) => {
                *session.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                SESSION.store(std::ptr::from_ref(session).cast_mut(), Release);
                Some(session)
            }
            Err(error) => {
                session.file.unlink();
                say_off(&format!("no background thread: {error}"));
                None
            }
        }
    }

    /// A ring for this thread: one that a thread left, or a new one.
    ///
    /// # Errors
    ///
    /// When there is no room for one more.
    pub fn writer(&self) -> io::Result<Writer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        match free.pop() {
            Some(writer) => Ok(writer),
            // The lock is held: rings are added one at a time.
            None => self.file.add_ring().map(|(_, map)| Writer::new(map)),
        }
    }

    /// Takes back the ring of a thread that ends.
    pub fn give_back(&self, writer: Writer) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
    }

    /// Ends recording for good, with one line on standard error.
    pub fn switch_off(&self, reason: &str) {
        if MODE.swap(OFF, Release) != OFF {
            say_off(reason);
        }
        self.file.unlink();
    }

    /// Has everything written out, as far as that takes no longer than [`PATIENCE`]. What is left
    /// stays in the ring file for a reader.
    pub fn end(&self) {
        self.ending.store(true, Release);
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(worker) = worker {
            worker.unpark();
        }
        let begun = Instant::now();
        while !self.ended.load(Acquire) && !Self::is_off() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Where the ring file is.
    pub fn ring_path(&self) -> PathBuf {
        self.file.path().to_owned()
    }
}

fn say_off(reason: &str) {
    say(&format!("NCCL calls are not recorded: {reason}"));
}

/// The locks that a fork must find free, in the order in which they are taken.
fn locks() -> [&'static Lock; 4] {
    [&LOCK, &pending::LOCK, &library::LOCK, &comms::LOCK]
}

/// Has forked children begin anew. Asked for once in a process and its children.
fn watch_forks() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Relaxed) {
        // SAFETY: the functions below are part of this library, which is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        }
    }
}

unsafe extern "C" fn before_fork() {
    // The first is held while this is asked for; no fork happens on that thread then.
    locks().into_iter().for_each(Lock::acquire);
}

unsafe extern "C" fn after_fork() {
    locks().into_iter().rev().for_each(Lock::release);
}

unsafe extern "C" fn in_child() {
    SESSION.store(std::ptr::null_mut(), Release);
    // Off stays off: what the environment says has not changed.
    let _ = MODE.compare_exchange(ON, UNDECIDED, Release, Relaxed);
    Local::with(|local| {
        local.recorder.set(std::ptr::null());
        local.depth.set(0);
        local.inside.set(false);
    });
    locks().into_iter().rev().for_each(Lock::release);
}
