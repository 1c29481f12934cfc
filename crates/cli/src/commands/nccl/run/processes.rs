//! What the system says of the processes of a run on this host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Variables that hold a process's rank, the first that is set counts.
const RANK: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
/// Most of the kernel's log that is read, bytes.
const MAX_LOG: usize = 4 << 20;

/// The processes of one run on this host, by rank. A rank may have several: loaders and helpers
/// inherit its environment.
#[derive(Debug)]
pub struct Processes {
    proc: PathBuf,
    run_id: String,
    known: BTreeMap<u32, Option<i64>>,
}

impl Processes {
    /// None known yet. `proc` is `/proc`.
    pub fn new(proc: &Path, run_id: &str) -> Self {
        Self { proc: proc.to_owned(), run_id: run_id.to_owned(), known: BTreeMap::new() }
    }

    /// Looks for new processes. Those that ended stay known by their rank.
    pub fn look(&mut self) {
        let Ok(entries) = fs::read_dir(&self.proc) else { return };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        for pid in pids {
            if !self.known.contains_key(&pid) {
                let rank = self.rank_of(pid);
                self.known.insert(pid, rank);
            }
        }
    }

    /// Rank of a process of this run, from its environment; `None` for any other process.
    fn rank_of(&self, pid: u32) -> Option<i64> {
        let environment = fs::read(self.proc.join(pid.to_string()).join("environ")).ok()?;
        let value = |name: &str| {
            let mut pairs = environment.split(|byte| *byte == 0);
            pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        };
        if value("DEEPXTRACE_RUN_ID")? != self.run_id.as_bytes() {
            return None;
        }
        let rank = RANK.iter().find_map(|name| value(name))?;
        std::str::from_utf8(rank).ok()?.trim().parse().ok()
    }

    /// What the system says of a rank: the process with number `pid` if the trace names one, else
    /// the oldest of its environment. `None` where no process of it was ever seen on this host.
    pub fn describe(&self, rank: i64, pid: Option<u32>) -> Option<String> {
        let mine: BTreeSet<u32> =
            self.known.iter().filter(|(_, of)| **of == Some(rank)).map(|(pid, _)| *pid).collect();
        let pid = pid.or_else(|| mine.first().copied())?;
        let state = match describe(&self.proc, pid) {
            Some(state) => state,
            None => match kernel_log().and_then(|log| killed_by(&log, pid)) {
                Some(cause) => format!("gone: {cause}"),
                None => "gone, the kernel's log does not say why".to_owned(),
            },
        };
        Some(format!("rank {rank}: process {pid} {state}"))
    }
}

/// State of a process and where it waits, `None` if it is gone.
fn describe(proc: &Path, pid: u32) -> Option<String> {
    let folder = proc.join(pid.to_string());
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name is in parentheses and may have any character: fields begin behind the last one.
    let (_, fields) = stat.rsplit_once(')')?;
    let state = fields.trim_start().chars().next()?;
    let place = fs::read_to_string(folder.join("wchan")).unwrap_or_default();
    let place = place.trim();
    let place = match place {
        "" | "0" => String::new(),
        place => format!(" in {place}"),
    };
    Some(match state {
        'R' => "is running".to_owned(),
        'S' => format!("sleeps{place}"),
        'D' => format!("waits in the kernel for a device or a disk{place}"),
        'T' => "is stopped by a signal".to_owned(),
        't' => "is stopped by a debugger".to_owned(),
        'Z' => "has ended, its parent has not noticed".to_owned(),
        'X' | 'x' => "has ended".to_owned(),
        other => format!("is in state {other}{place}"),
    })
}

/// What the kernel wrote to its log, as far as this user may read it.
fn kernel_log() -> Option<String> {
    let mut options = fs::OpenOptions::new();
    // Without waiting for news.
    let flag = rustix::fs::OFlags::NONBLOCK.bits();
    let mut log = options.read(true).custom_flags(flag.cast_signed()).open("/dev/kmsg").ok()?;
    let (mut text, mut record) = (Vec::new(), [0; 8192]);
    while text.len() < MAX_LOG {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(bytes) => text.extend_from_slice(record.get(..bytes)?),
            // A record was overwritten meanwhile: the next one is there.
            Err(error) if error.raw_os_error() == Some(32) => {}
            Err(_) => break,
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Why the kernel ended a process, from its log.
fn killed_by(log: &str, pid: u32) -> Option<String> {
    let killed = format!("Killed process {pid} ");
    let crashed = format!("[{pid}]: segfault");
    log.lines().rev().find_map(|line| {
        if line.contains(&killed) {
            Some("killed by the kernel, which was out of memory".to_owned())
        } else if line.contains(&crashed) {
            Some("crashed (segmentation fault)".to_owned())
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(proc: &Path, pid: u32, environment: &str, state: &str, place: &str) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("environ"), environment.replace(' ', "\0")).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (a (b) c) {state} 1 2 3")).unwrap();
        fs::write(folder.join("wchan"), place).unwrap();
    }

    #[test]
    fn a_rank_is_described_by_its_oldest_process() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 40, "RANK=1 DEEPXTRACE_RUN_ID=r", "S", "futex_wait_queue");
        process(proc.path(), 41, "RANK=1 DEEPXTRACE_RUN_ID=r", "R", "0");
        process(proc.path(), 42, "RANK=0 DEEPXTRACE_RUN_ID=other", "R", "0");
        process(proc.path(), 43, "OMPI_COMM_WORLD_RANK=2 DEEPXTRACE_RUN_ID=r", "D", "nfs_wait");
        let mut processes = Processes::new(proc.path(), "r");
        processes.look();
        let says = |rank, pid| processes.describe(rank, pid);
        assert_eq!(says(1, None).unwrap(), "rank 1: process 40 sleeps in futex_wait_queue");
        assert_eq!(says(1, Some(41)).unwrap(), "rank 1: process 41 is running");
        assert_eq!(
            says(2, None).unwrap(),
            "rank 2: process 43 waits in the kernel for a device or a disk in nfs_wait"
        );
        assert_eq!(says(0, None), None);
        fs::remove_dir_all(proc.path().join("40")).unwrap();
        assert!(says(1, None).unwrap().starts_with("rank 1: process 40 gone"));
    }

    #[test]
    fn the_kernel_says_who_killed() {
        let log = "6,1,2,-;Out of memory: Killed process 77 (python3) total-vm:1kB\n\
                   6,2,3,-;python3[78]: segfault at 0 ip 0 sp 0 error 4\n";
        assert!(killed_by(log, 77).unwrap().contains("out of memory"));
        assert!(killed_by(log, 78).unwrap().contains("segmentation"));
        assert_eq!(killed_by(log, 7), None);
    }
}
