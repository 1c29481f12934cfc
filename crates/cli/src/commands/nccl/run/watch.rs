//! Looking at the traces while the job runs.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use deepxtrace_nccl_h2::{Details, Finding, RunFolder, Settings};

use super::processes::Processes;
use super::say;
use crate::commands::nccl::left;
use crate::commands::nccl::live::Live;
use crate::text;

/// Most processes of a finding that the system is asked about.
const MAX_DESCRIBED: usize = 16;
/// Time between two looks for new processes and for killed ones.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for what the processes of other nodes wrote last to arrive in the shared folder.
const LAG: Duration = Duration::from_secs(5);

/// What a run came to.
#[derive(Debug, Default)]
pub struct Told {
    /// Findings.
    pub findings: usize,
    /// Their kinds.
    pub kinds: Vec<&'static str>,
    /// Whether any process called NCCL.
    pub calls_seen: bool,
}

/// Follows the traces of a run.
pub struct Watcher {
    run: RunFolder,
    settings: Settings,
    processes: Processes,
    live: Option<Live>,
    analyzes: bool,
    next: Instant,
    next_look: Instant,
    told: Told,
}

impl Watcher {
    /// Begins with an empty folder.
    pub fn new(folder: &Path, run_id: &str, settings: Settings, analyzes: bool) -> Self {
        Self {
            run: RunFolder { path: folder.to_owned(), run_id: run_id.to_owned() },
            settings,
            processes: Processes::new(Path::new("/proc"), run_id),
            live: None,
            analyzes,
            next: Instant::now(),
            next_look: Instant::now(),
            told: Told::default(),
        }
    }

    /// Looks around if the time has come. A job is not ended because it cannot be watched: what goes
    /// wrong is said.
    pub fn look_if_due(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        self.processes.look();
        left::take_up(&self.run.path);
        if self.analyzes && now >= self.next_look {
            let looked = self.look();
            self.next_look =
                now + self.live.as_ref().map_or(Duration::from_secs(5), Live::interval);
            if let Err(error) = looked {
                say(&format!("this run is watched no longer: {error:#}"));
                self.analyzes = false;
            }
        }
    }

    /// Reads to the end and says what is still open. Where there are other nodes, their part of the
    /// last calls may not be there yet: what it would close is waited for, 5 s at most.
    pub fn finish(mut self, other_nodes: bool) -> anyhow::Result<Told> {
        let patience = Instant::now() + LAG;
        while other_nodes && self.analyzes && Instant::now() < patience {
            self.look()?;
            if !self.live()?.is_open() {
                break;
            }
            std::thread::sleep(LAG / 50);
        }
        self.told.calls_seen = self.run.files().is_ok_and(|files| !files.is_empty());
        if self.analyzes {
            let findings = self.live()?.finish()?;
            self.tell(&findings)?;
        }
        if let Some(live) = self.live.take() {
            live.close();
        }
        Ok(self.told)
    }

    fn live(&mut self) -> anyhow::Result<&mut Live> {
        let live = match self.live.take() {
            Some(live) => live,
            None => Live::new(&self.run, None, None, self.settings)?,
        };
        Ok(self.live.insert(live))
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let findings = self.live()?.look(false, None)?;
        Ok(self.tell(&findings)?)
    }

    fn tell(&mut self, findings: &[Finding]) -> io::Result<()> {
        let mut out = anstream::stderr().lock();
        for finding in findings {
            text::nccl::finding(&mut out, finding)?;
            for (rank, pid) in ranks(finding).into_iter().take(MAX_DESCRIBED) {
                if let Some(says) = self.processes.describe(rank, pid) {
                    writeln!(out, "  {says}")?;
                }
            }
            self.told.findings += 1;
            self.told.kinds.push(finding.hang_type.as_str());
        }
        Ok(())
    }
}

/// Ranks of the run that a finding waits for, each with its process where the trace names it.
fn ranks(finding: &Finding) -> Vec<(i64, Option<u32>)> {
    let statuses = match &finding.details {
        Details::CollectiveMissingEnter(details) => &details.missing_rank_status,
        Details::CommInitMissingEnter(details) => &details.missing_rank_status,
        Details::RootBlocker(details) => {
            let pid = |pid: Option<i64>| pid.and_then(|pid| u32::try_from(pid).ok());
            let roots = details.roots.iter();
            return roots.filter_map(|root| Some((root.rank?, pid(root.pid)))).collect();
        }
        Details::RankHeartbeatTimeout(details) => return vec![(details.rank, None)],
        _ => return Vec::new(),
    };
    statuses.iter().filter_map(|status| Some((status.rank?, None))).collect()
}
