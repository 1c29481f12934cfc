//! What the environment says.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use deepxtrace_nccl_ring::Identity;
use deepxtrace_nccl_ring::layout::DEFAULT_SLOTS;

/// Variables that hold the process's rank, the first that is set counts.
const RANK: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
const LOCAL_RANK: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
const WORLD_SIZE: [&str; 4] = ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// Bytes of trace that a process may keep.
const DEFAULT_MAX_BYTES: u64 = 1 << 30;
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(5);

/// How this process is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Who the process is and where its trace goes.
    pub identity: Identity,
    /// Calls that a ring holds.
    pub slots: usize,
    /// Bytes of trace that the process may keep.
    pub max_bytes: u64,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Phase until the process names another.
    pub phase: String,
}

impl Config {
    /// Reads the environment through `variable`; `None` where this process is not to be recorded:
    /// no folder, no rank, or switched off.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |names: &[&str]| {
            let set = names.iter().find_map(|name| variable(name));
            set.map(|value| value.to_string_lossy().into_owned())
        };
        let number = |names: &[&str]| text(names).and_then(|value| value.trim().parse().ok());
        let enable = text(&["DEEPXTRACE_TRACE_ENABLE", "FLAGSCALE_TRACE_ENABLE"]);
        if enable.is_some_and(|word| is_no(&word)) {
            return None;
        }
        let folder = variable("DEEPXTRACE_TRACE_DIR").or_else(|| variable("FLAGSCALE_TRACE_DIR"));
        let folder = folder.filter(|folder| !folder.is_empty())?;
        let rank: i64 = number(&RANK).filter(|rank| *rank >= 0)?;
        let pid = i64::from(std::process::id());
        let run_id = text(&["DEEPXTRACE_RUN_ID", "FLAGSCALE_TRACE_RUN_ID"]);
        let positive = |name| number(&[name]).filter(|value| *value > 0);
        let slots = positive("DEEPXTRACE_RING_CALLS").and_then(|n| usize::try_from(n).ok());
        let seconds = text(&["DEEPXTRACE_HEARTBEAT_S"]).and_then(|value| value.parse().ok());
        Some(Self {
            identity: Identity {
                run_id: run_id.filter(|id| !id.is_empty()).unwrap_or_else(|| "default".to_owned()),
                hostname: hostname(),
                folder: absolute(folder),
                stem: format!("rank_{rank}_pid_{pid}"),
                rank,
                local_rank: number(&LOCAL_RANK).unwrap_or(-1),
                world_size: number(&WORLD_SIZE).unwrap_or(-1),
                pid,
            },
            slots: slots.unwrap_or(DEFAULT_SLOTS).min(1 << 22),
            max_bytes: positive("DEEPXTRACE_TRACE_MAX_BYTES")
                .map_or(DEFAULT_MAX_BYTES, i64::unsigned_abs),
            heartbeat: seconds
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .filter(|period| *period >= Duration::from_millis(10))
                .unwrap_or(DEFAULT_HEARTBEAT),
            phase: text(&["DEEPXTRACE_PHASE"]).unwrap_or_else(|| "train".to_owned()),
        })
    }
}

fn is_no(word: &str) -> bool {
    ["0", "false", "off", "no"].contains(&word.trim().to_ascii_lowercase().as_str())
}

fn absolute(folder: OsString) -> PathBuf {
    let folder = PathBuf::from(folder);
    std::path::absolute(&folder).unwrap_or(folder)
}

/// Name of this host.
pub fn hostname() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the buffer is valid for its length less the final zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Config;

    fn read(variables: &[(&str, &str)]) -> Option<Config> {
        Config::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).into())
        })
    }

    const DIR: (&str, &str) = ("DEEPXTRACE_TRACE_DIR", "/t");

    #[test]
    fn a_process_is_recorded_where_a_folder_and_a_rank_are_known() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[DIR]), None);
        assert_eq!(read(&[("RANK", "3")]), None);
        assert_eq!(read(&[DIR, ("RANK", "x")]), None);
        assert_eq!(read(&[DIR, ("RANK", "-1")]), None);
        assert_eq!(read(&[DIR, ("RANK", "3")]).unwrap().identity.rank, 3);
    }

    #[test]
    fn launchers_name_the_rank_in_their_own_ways() {
        for name in ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"] {
            assert_eq!(read(&[DIR, (name, "12")]).unwrap().identity.rank, 12);
        }
        let both = read(&[DIR, ("SLURM_PROCID", "0"), ("RANK", "5")]).unwrap();
        assert_eq!(both.identity.rank, 5);
        assert!(both.identity.stem.starts_with("rank_5_pid_"));
    }

    #[test]
    fn a_word_switches_it_off() {
        for word in ["0", "false", "OFF", " no "] {
            assert_eq!(read(&[DIR, ("RANK", "0"), ("DEEPXTRACE_TRACE_ENABLE", word)]), None);
        }
        assert!(read(&[DIR, ("RANK", "0"), ("DEEPXTRACE_TRACE_ENABLE", "1")]).is_some());
    }

    #[test]
    fn the_original_names_are_read_behind_the_own() {
        let original = [
            ("FLAGSCALE_TRACE_DIR", "/old"),
            ("FLAGSCALE_TRACE_RUN_ID", "r0"),
            ("FLAGSCALE_TRACE_ENABLE", "1"),
            ("RANK", "0"),
        ];
        let config = read(&original).unwrap();
        assert_eq!(config.identity.folder, Path::new("/old"));
        assert_eq!(config.identity.run_id, "r0");
        let own = [DIR, ("DEEPXTRACE_RUN_ID", "r1")];
        let both = [&original[..], &own[..]].concat();
        let config = read(&both).unwrap();
        assert_eq!(config.identity.folder, Path::new("/t"));
        assert_eq!(config.identity.run_id, "r1");
    }

    #[test]
    fn unusable_numbers_leave_the_defaults() {
        let set = [
            DIR,
            ("RANK", "0"),
            ("DEEPXTRACE_TRACE_MAX_BYTES", "-5"),
            ("DEEPXTRACE_HEARTBEAT_S", "nan"),
            ("DEEPXTRACE_RING_CALLS", "many"),
        ];
        let config = read(&set).unwrap();
        assert_eq!(config.max_bytes, 1 << 30);
        assert_eq!(config.heartbeat.as_secs(), 5);
        assert_eq!(config.slots, 131_072);
        assert_eq!(config.phase, "train");
        assert_eq!((config.identity.local_rank, config.identity.world_size), (-1, -1));
    }
}
