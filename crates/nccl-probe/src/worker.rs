//! The background thread: rings to trace, heartbeats.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::{Thread, park_timeout};
use std::time::{Duration, Instant};

use deepxtrace_nccl_ring::layout::header;
use deepxtrace_nccl_ring::{Drainer, ring_folder, sweep};

use crate::session::Session;
use crate::sys::guarded;

/// Pause between two looks at the rings while calls come in.
const BUSY: Duration = Duration::from_millis(5);
/// Longest pause. A ring takes 131 ms to fill at a million calls a second.
const IDLE: Duration = Duration::from_millis(40);
const STACK_BYTES: usize = 256 * 1024;

/// Starts the thread. No signal is ever delivered to it.
pub fn start(session: &'static Session) -> io::Result<Thread> {
    spawn("deepxtrace", move || {
        if guarded(|| run(session)).is_none() {
            session.switch_off("the background thread failed");
        }
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    // SAFETY: signal sets are plain bits; the calls only change this thread's mask, and set it back.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    let started = builder.spawn(work);
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    started.map(|handle| handle.thread().clone())
}

fn run(session: &'static Session) {
    if let Err(error) = make_folder(session) {
        return session
            .switch_off(&format!("{}: {error}", session.config.identity.folder.display()));
    }
    let mut drainer = Drainer::new(&session.file, true);
    let mut next_beat = Instant::now();
    let mut pause = BUSY;
    let mut swept = false;
    while !Session::is_off() {
        let ending = session.ending.load(Acquire) && !session.ended.load(Acquire);
        let busy = !drainer.is_empty();
        if let Err(error) = turn(session, &mut drainer, &mut next_beat, ending) {
            return session.switch_off(&format!("{}: {error}", drainer.folder().display()));
        }
        if ending {
            session.ended.store(true, Release);
        }
        if !swept {
            swept = true;
            let own = session.ring_path();
            // Without it, what dead processes left stays until a reader comes.
            let _ = spawn("deepxtrace-sweep", move || {
                guarded(|| sweep(&ring_folder(), &own));
            });
        }
        pause = if busy { BUSY } else { (pause + BUSY / 4).min(IDLE) };
        park_timeout(pause);
    }
}

fn turn(
    session: &Session,
    drainer: &mut Drainer,
    next_beat: &mut Instant,
    ending: bool,
) -> io::Result<()> {
    drainer.drain(&session.file)?;
    let now = Instant::now();
    if now >= *next_beat {
        *next_beat = now + session.config.heartbeat;
        drainer.heartbeat(&session.file, &phase(session))?;
    }
    if ending {
        drainer.finish(&session.file)?;
        session.file.unlink();
    }
    Ok(())
}

fn make_folder(session: &Session) -> io::Result<()> {
    let folder = &session.config.identity.folder;
    std::fs::create_dir_all(folder)?;
    let numbers = std::fs::metadata(folder)?;
    session.file.word(header::FOLDER_INODE).store(numbers.ino(), Relaxed);
    session.file.word(header::FOLDER_DEVICE).store(numbers.dev(), Release);
    Ok(())
}

/// Longest phase name.
const PHASE_WORDS: usize = 4;
static PHASE: [AtomicU64; PHASE_WORDS] = [const { AtomicU64::new(0) }; PHASE_WORDS];
static PHASE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Sets what the process is doing, for the next heartbeat. The first 32 bytes count.
pub fn set_phase(name: &[u8]) {
    let name = name.get(..name.len().min(PHASE_WORDS * 8)).unwrap_or_default();
    for (place, piece) in PHASE.iter().zip(name.chunks(8)) {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
        place.store(u64::from_le_bytes(bytes), Relaxed);
    }
    PHASE_BYTES.store(name.len(), Release);
}

fn phase(session: &Session) -> String {
    let length = PHASE_BYTES.load(Acquire);
    if length == 0 {
        return session.config.phase.clone();
    }
    let bytes = PHASE.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
    String::from_utf8_lossy(&bytes.take(length).collect::<Vec<u8>>()).into_owned()
}
