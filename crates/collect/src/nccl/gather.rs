//! The group and the gather, over a worker thread that alone calls NCCL.
//!
//! A call of NCCL can wait for other ranks inside the library. On a thread of its own it holds up
//! nobody: the caller waits for the thread, and no longer than it wants to.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::comm::NcclComm;
use super::engine::{Engine, Meeting, Own, Part, Stream};
use crate::cuda::CudaDevice;
use crate::cuda::resources::PrivateStream;
use crate::device::{DeviceError, Identity, SkipReason};
use crate::gather::{
    Contribution, Gather, GatherError, Gathered, Request, Residence, Status, Wanted,
};
use crate::group::{
    Agreement, Difference, Group, Hello, JoinError, Joined, Membership, Proposal, agree,
};
use crate::stop::{Stop, Until};

/// What the worker gets beyond the caller's deadline to report its own.
const GRACE: Duration = Duration::from_millis(500);
/// How long dropping waits for the worker to give the communicator back.
const DROP_PATIENCE: Duration = Duration::from_secs(2);
/// How long the host's side of a request may take.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// An EP group whose ranks have an NCCL communicator, one GPU each.
///
/// The gather takes vectors from device memory ([`Residence::Device`]) and serves the synchronous
/// schedule: every rank makes the same steps, as with any collective. A rank that does not come to
/// a round in time ends the gather on all ranks with a typed error: NCCL cannot go on without it.
/// A communicator of our own is then aborted; with a borrowed one all buffers are left alone, later
/// rounds are refused ([`GatherError::OutOfUse`]), and the program decides.
///
/// ```no_run
/// use std::time::Duration;
/// use deepxtrace_collect::{CudaDevice, Membership, NcclComm, NcclGroup, NcclUniqueId, Stop, Until};
///
/// let device = CudaDevice::new(0)?;
/// // One rank makes the id and sends its bytes to the others.
/// let id = NcclUniqueId::new()?;
/// let stop = Stop::new();
/// let comm = NcclComm::new(&device, id, 0, 2, Until::after(Duration::from_secs(60), &stop))?;
/// let group = NcclGroup::new(comm, &device, Membership::world(0, 2)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NcclGroup {
    engine: Box<Engine>,
    membership: Membership,
}

impl NcclGroup {
    /// A group over a communicator, on a stream of our own. The ranks of the group are those of
    /// the communicator, in its order.
    ///
    /// # Errors
    ///
    /// - the communicator's rank, size or device is another than that of `membership` or `device`
    /// - the device has no memory or stream left
    pub fn new(
        comm: NcclComm,
        device: &CudaDevice,
        membership: Membership,
    ) -> Result<Self, DeviceError> {
        let stream = Stream::Own(PrivateStream::new(device)?);
        Self::make(comm, device, stream, membership)
    }

    /// The same on the stream on which the program uses the communicator, which NCCL wants for a
    /// communicator that is shared.
    ///
    /// While that stream is being captured nothing is enqueued: the step is skipped on all ranks
    /// ([`GatherError::Capturing`]), which therefore must capture at the same step.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of the device's primary context, or null, and stays alive as long as
    /// the group and what it becomes.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub unsafe fn on_stream(
        comm: NcclComm,
        device: &CudaDevice,
        stream: *mut c_void,
        membership: Membership,
    ) -> Result<Self, DeviceError> {
        let stream = Stream::Borrowed(stream.expose_provenance());
        Self::make(comm, device, stream, membership)
    }

    fn make(
        comm: NcclComm,
        device: &CudaDevice,
        stream: Stream,
        membership: Membership,
    ) -> Result<Self, DeviceError> {
        let compared = [
            ("rank", comm.rank(), membership.rank()),
            ("size", comm.size(), membership.size()),
            ("CUDA device", comm.device(), device.ordinal()),
        ];
        if let Some((what, found, wanted)) = compared.into_iter().find(|(_, a, b)| a != b) {
            return Err(DeviceError::Unavailable {
                what: "the group over the NCCL communicator".into(),
                reason: format!("the communicator's {what} is {found}, the group's is {wanted}"),
            });
        }
        let engine = Engine::new(comm, device.clone(), stream, membership.root())?;
        Ok(Self { engine: Box::new(engine), membership })
    }
}

/// What a rank says when it joins; only the root's instance counts.
#[derive(Serialize, Deserialize)]
struct Greeting {
    hello: Hello,
    instance: Uuid,
}

/// What the root answers.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Agreed(Agreement),
    Differ(Vec<Difference>),
    /// A greeting that cannot be read: an other version of this crate.
    Unreadable(usize),
}

fn judge(texts: &[Vec<u8>], root: usize) -> Verdict {
    let mut hellos = Vec::with_capacity(texts.len());
    let mut instance = Uuid::nil();
    for (rank, text) in texts.iter().enumerate() {
        let Ok(greeting) = serde_json::from_slice::<Greeting>(text) else {
            return Verdict::Unreadable(rank);
        };
        if rank == root {
            instance = greeting.instance;
        }
        hellos.push(greeting.hello);
    }
    match agree(&hellos, instance) {
        Ok(agreement) => Verdict::Agreed(agreement),
        Err(differences) => Verdict::Differ(differences),
    }
}

impl Group for NcclGroup {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn join(
        self: Box<Self>,
        proposal: &Proposal,
        until: Until<'_>,
    ) -> Result<Option<Joined>, JoinError> {
        let Self { engine, membership } = *self;
        let transport = |reason: String| JoinError::Transport { what: "NCCL".into(), reason };
        let hello = Hello::new(&membership, proposal);
        let greeting = Greeting { hello, instance: Uuid::new_v4() };
        let text = serde_json::to_vec(&greeting).map_err(|error| transport(error.to_string()))?;
        let mut link = Link::start(engine).map_err(|error| transport(error.to_string()))?;
        let root = membership.root();
        let work = Work::Meet { text, vector_len: proposal.vector_len, root };
        let done = link.run(work, until).map_err(|error| match error {
            GatherError::Stopped => JoinError::Stopped,
            error => transport(error.to_string()),
        })?;
        let Done::Met(meeting) = done else { return Err(transport("no answer".into())) };
        let verdict = serde_json::from_slice(&meeting.reply)
            .map_err(|error| transport(format!("the root's answer cannot be read: {error}")))?;
        let identities = identities(&meeting.texts);
        match verdict {
            Verdict::Agreed(Agreement::Disabled) => Ok(None),
            Verdict::Agreed(Agreement::Enabled(instance)) => {
                let gather = NcclGather { membership, identities, link };
                Ok(Some(Joined { instance, gather: Box::new(gather) }))
            }
            Verdict::Differ(differences) => Err(JoinError::Disagreement(differences)),
            Verdict::Unreadable(rank) => Err(JoinError::Refused {
                rank,
                reason: "it runs another version of deepxtrace".into(),
            }),
        }
    }
}

fn identities(texts: &[Vec<u8>]) -> Vec<Arc<Identity>> {
    let read = |text: &Vec<u8>| serde_json::from_slice::<Greeting>(text).ok();
    let identity = |greeting: Option<Greeting>| {
        greeting.map(|greeting| greeting.hello.proposal.identity).unwrap_or_default()
    };
    texts.iter().map(|text| Arc::new(identity(read(text)))).collect()
}

/// The gather over NCCL.
struct NcclGather {
    membership: Membership,
    identities: Vec<Arc<Identity>>,
    link: Link,
}

impl NcclGather {
    fn own(contribution: Contribution<'_>, len: usize) -> Result<Own, GatherError> {
        match contribution {
            Contribution::Device { address, len: own } if own == len => {
                Ok(Own::Vector { address, len })
            }
            Contribution::Skipped(reason) => Ok(Own::Skipped(reason.code())),
            // The root waits for an answer all the same.
            Contribution::Device { .. } | Contribution::Host(_) => {
                Ok(Own::Skipped(SkipReason::Other.code()))
            }
        }
    }
}

impl Gather for NcclGather {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn residence(&self) -> Residence {
        Residence::Device
    }

    fn identity(&self, rank: usize) -> Option<Arc<Identity>> {
        self.identities.get(rank).cloned()
    }

    fn announce(&mut self, request: Request) -> Result<(), GatherError> {
        if !self.membership.is_root() {
            return Err(GatherError::WrongSide("announce"));
        }
        let stop = Stop::new();
        let until = Until::after(ANNOUNCE_TIMEOUT, &stop);
        self.link.run(Work::Announce(request), until).map(drop)
    }

    fn gather(
        &mut self,
        _request: Request,
        own: Contribution<'_>,
        into: &mut Gathered,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        if !self.membership.is_root() {
            return Err(GatherError::WrongSide("gather"));
        }
        into.clear();
        let len = into.vector_len();
        let own = Self::own(own, len)?;
        self.link.run(Work::Collect { own, len }, until)?;
        let Some(engine) = self.link.engine() else { return Ok(()) };
        let rows = engine.vectors().chunks_exact(len.max(1));
        for ((rank, part), row) in engine.parts().iter().enumerate().zip(rows) {
            let status = match *part {
                Part::Skipped(code) => Status::Skipped(SkipReason::from_code(code)),
                Part::Vector => {
                    if let Some(into) = into.row_mut(rank) {
                        into.copy_from_slice(row);
                    }
                    Status::Ok
                }
            };
            into.set_status(rank, status);
        }
        Ok(())
    }

    fn await_request(
        &mut self,
        wanted: Wanted,
        until: Until<'_>,
    ) -> Result<Option<Request>, GatherError> {
        if self.membership.is_root() {
            return Err(GatherError::WrongSide("await_request"));
        }
        loop {
            let Done::Request(request) = self.link.run(Work::Listen, until)? else {
                return Ok(None);
            };
            if wanted.takes(request) {
                return Ok(Some(request));
            }
            // The root waits for an answer to a step that this rank has left behind.
            let own = Own::Skipped(SkipReason::Other.code());
            self.link.run(Work::Answer { own }, until)?;
        }
    }

    fn answer(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        if self.membership.is_root() {
            return Err(GatherError::WrongSide("answer"));
        }
        let own = Self::own(own, request.len)?;
        self.link.run(Work::Answer { own }, until).map(drop)
    }

    /// Nothing travels: the root's next round would wait for this rank in any case.
    fn goodbye(&mut self) {}
}

/// What the worker is to do.
enum Work {
    Meet {
        text: Vec<u8>,
        vector_len: usize,
        root: usize,
    },
    Announce(Request),
    Listen,
    Collect {
        own: Own,
        len: usize,
    },
    Answer {
        own: Own,
    },
    /// Gives the engine back.
    End,
}

/// What came of it.
enum Done {
    Met(Meeting),
    Request(Request),
    Capturing,
    Nothing,
}

struct Job {
    engine: Box<Engine>,
    work: Work,
    deadline: Instant,
}

/// The engine goes to the worker and back; after a failure it does not come back.
type Answer = (Option<Box<Engine>>, Result<Done, DeviceError>);

/// The connection to the worker thread.
struct Link {
    engine: Option<Box<Engine>>,
    jobs: Option<SyncSender<Job>>,
    answers: Receiver<Answer>,
    worker: Option<JoinHandle<()>>,
    stop: Stop,
    out_of_use: Option<String>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("out_of_use", &self.out_of_use).finish_non_exhaustive()
    }
}

impl Link {
    fn start(engine: Box<Engine>) -> std::io::Result<Self> {
        let (jobs, inbox) = sync_channel::<Job>(1);
        let (outbox, answers) = sync_channel::<Answer>(1);
        let stop = Stop::new();
        let (device, worker_stop) = (engine.device().clone(), stop.clone());
        let named = std::thread::Builder::new().name("deepxtrace-nccl".to_owned());
        let worker = named.spawn(move || {
            // NCCL wants the device current and stays out of captures in relaxed mode.
            let _entered = device.enter();
            for job in inbox {
                let (answer, broken) = perform(job, &worker_stop);
                // Where nobody waits any more, the engine is given back here.
                let heard = outbox.send(answer).is_ok();
                // Ending a communicator can take long: the caller has its answer by now.
                if let Some(engine) = broken {
                    engine.abandon();
                }
                if !heard {
                    break;
                }
            }
        })?;
        Ok(Self {
            engine: Some(engine),
            jobs: Some(jobs),
            answers,
            worker: Some(worker),
            stop,
            out_of_use: None,
        })
    }

    fn engine(&self) -> Option<&Engine> {
        self.engine.as_deref()
    }

    fn run(&mut self, work: Work, until: Until<'_>) -> Result<Done, GatherError> {
        if let Some(reason) = &self.out_of_use {
            return Err(GatherError::OutOfUse(reason.clone()));
        }
        if until.stop().is_set() {
            return Err(GatherError::Stopped);
        }
        let deadline = Instant::now() + until.remaining();
        let (Some(engine), Some(jobs)) = (self.engine.take(), &self.jobs) else {
            return Err(self.fail("the worker thread has ended".to_owned()));
        };
        if jobs.send(Job { engine, work, deadline }).is_err() {
            return Err(self.fail("the worker thread has ended".to_owned()));
        }
        match self.wait(deadline + GRACE, until.stop()) {
            Ok((engine, Ok(Done::Capturing))) => {
                self.engine = engine;
                Err(GatherError::Capturing)
            }
            Ok((engine, Ok(done))) => {
                self.engine = engine;
                Ok(done)
            }
            Ok((_, Err(error))) => Err(self.fail(error.to_string())),
            Err(reason) => {
                // The worker is inside NCCL; when it comes out it leaves everything alone.
                self.stop.set();
                let error = self.fail(reason.to_owned());
                Err(if until.stop().is_set() { GatherError::Stopped } else { error })
            }
        }
    }

    fn wait(&self, deadline: Instant, stop: &Stop) -> Result<Answer, &'static str> {
        loop {
            match self.answers.recv_timeout(Duration::from_millis(20)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err("the worker thread has ended"),
                Err(RecvTimeoutError::Timeout) if stop.is_set() => return Err("stopped"),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err("an NCCL call did not come back in time");
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The gather is of no more use from here on.
    fn fail(&mut self, reason: String) -> GatherError {
        self.out_of_use = Some(reason.clone());
        GatherError::Transport { what: "NCCL", reason }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.set();
        // The communicator is given back on the worker, which may wait inside NCCL for it.
        if let (Some(engine), Some(jobs)) = (self.engine.take(), &self.jobs) {
            let deadline = Instant::now();
            let _ = jobs.try_send(Job { engine, work: Work::End, deadline });
        }
        self.jobs = None;
        // A process that ends while NCCL works on a thread of it can crash.
        let begin = Instant::now();
        let Some(worker) = self.worker.take() else { return };
        while !worker.is_finished() && begin.elapsed() < DROP_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        if worker.is_finished() {
            let _ = worker.join();
        }
    }
}

/// Does one job on the worker thread. An engine that failed comes apart from the answer.
fn perform(job: Job, stop: &Stop) -> (Answer, Option<Box<Engine>>) {
    let Job { mut engine, work, deadline } = job;
    if matches!(work, Work::End) {
        return ((None, Ok(Done::Nothing)), None);
    }
    let until = Until::after(deadline.saturating_duration_since(Instant::now()), stop);
    match attempt(&mut engine, work, until) {
        Ok(done) => ((Some(engine), Ok(done)), None),
        Err(error) => ((None, Err(error)), Some(engine)),
    }
}

fn attempt(engine: &mut Engine, work: Work, until: Until<'_>) -> Result<Done, DeviceError> {
    if engine.is_capturing()? {
        return Ok(Done::Capturing);
    }
    match work {
        Work::Meet { text, vector_len, root } => {
            engine.reserve(vector_len)?;
            let answer =
                |texts: &[Vec<u8>]| serde_json::to_vec(&judge(texts, root)).unwrap_or_default();
            engine.meet(&text, answer, until).map(Done::Met)
        }
        Work::Announce(request) => engine.announce(request, until).map(|()| Done::Nothing),
        Work::Listen => engine.listen(until).map(Done::Request),
        Work::Collect { own, len } => engine.collect(own, len, until).map(|()| Done::Nothing),
        Work::Answer { own } => engine.answer(own, until).map(|()| Done::Nothing),
        Work::End => Ok(Done::Nothing),
    }
}
