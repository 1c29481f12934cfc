//! Rounds on a thread of their own.

use std::fmt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::collector::{Answered, Collector, Round};
use crate::gather::GatherError;
use crate::schedule::Schedule;
use crate::stop::{Stop, Until};

/// How long a rank waits for a request before it looks around.
const REQUEST_WAIT: Duration = Duration::from_secs(1);
/// First and longest pause of a rank after failed answers.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What happened in the background.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Root: a round has ended.
    Round(Round<'a>),
    /// Others: a request was answered.
    Answered(Answered),
    /// A round failed on this rank; the next is tried after the pause.
    Failed {
        /// Why.
        error: GatherError,
        /// Until the next attempt.
        pause: Duration,
    },
    /// Others: the root has left; there will be no more rounds.
    RootLeft,
}

/// A thread that takes part in rounds until it is stopped: on the root it leads them when the
/// schedule says so, elsewhere it answers.
///
/// A failed round does not end it: it reports, waits longer, and goes on. Dropping it stops it.
pub struct Background {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    /// Set when the thread has ended.
    ended: Stop,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("running", &self.thread.is_some()).finish()
    }
}

impl Background {
    /// Starts the thread on channel 0. `sink` is told what happens, on that thread, and should not
    /// take long: the next round waits for it.
    ///
    /// # Errors
    ///
    /// The operating system gives no thread.
    pub fn start(
        collector: Collector,
        schedule: Box<dyn Schedule>,
        sink: impl FnMut(Event<'_>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, ended) = (Stop::new(), Stop::new());
        let worker = Worker { collector, schedule, sink, stop: stop.clone() };
        let at_end = SetAtEnd(ended.clone());
        let thread =
            std::thread::Builder::new().name("deepxtrace".to_owned()).spawn(move || {
                // Also when the sink panics.
                let _at_end = at_end;
                worker.run();
            })?;
        Ok(Self { stop, thread: Some(thread), ended })
    }

    /// Ends the thread and waits until it has ended, `patience` at most; says whether it has. One
    /// that has not yet ended works on what its sink was told last, ends after it, and is not
    /// waited for again.
    pub fn stop(&mut self, patience: Duration) -> bool {
        self.stop.set();
        let Some(thread) = self.thread.take() else { return self.ended.is_set() };
        let ended = self.ended.sleep(patience);
        if ended {
            let _ = thread.join();
        }
        ended
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(5));
    }
}

struct SetAtEnd(Stop);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}

struct Worker<S> {
    collector: Collector,
    schedule: Box<dyn Schedule>,
    sink: S,
    stop: Stop,
}

impl<S: FnMut(Event<'_>)> Worker<S> {
    fn run(mut self) {
        if self.collector.gather().membership().is_root() {
            self.lead();
        } else {
            self.follow();
        }
        self.collector.goodbye();
    }

    fn lead(&mut self) {
        // A schedule without a clock never makes a round due here.
        let forever = Duration::from_secs(3600);
        loop {
            let wait = self.schedule.until_due(Instant::now());
            if self.stop.sleep(wait.unwrap_or(forever)) {
                return;
            }
            if wait.is_none() {
                continue;
            }
            match self.collector.lead(0, Until::after(forever, &self.stop)) {
                Ok(round) => {
                    self.schedule.ended(Instant::now(), true);
                    (self.sink)(Event::Round(round));
                }
                Err(GatherError::Stopped) => return,
                Err(error) => {
                    let now = Instant::now();
                    self.schedule.ended(now, false);
                    let pause = self.schedule.until_due(now).unwrap_or_default();
                    (self.sink)(Event::Failed { error, pause });
                }
            }
        }
    }

    fn follow(&mut self) {
        let mut pause = PAUSES.0;
        loop {
            match self.collector.follow(Until::after(REQUEST_WAIT, &self.stop)) {
                Ok(None) => {}
                Ok(Some(answered)) => {
                    pause = PAUSES.0;
                    (self.sink)(Event::Answered(answered));
                }
                Err(GatherError::Stopped) => return,
                Err(GatherError::RootLeft) => return (self.sink)(Event::RootLeft),
                Err(error) => {
                    (self.sink)(Event::Failed { error, pause });
                    if self.stop.sleep(pause) {
                        return;
                    }
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}
