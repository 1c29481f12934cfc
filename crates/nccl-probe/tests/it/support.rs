use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// The stand-ins and programs, compiled once.
pub struct Built {
    pub folder: PathBuf,
}

impl Built {
    pub fn get() -> &'static Self {
        static BUILT: OnceLock<Built> = OnceLock::new();
        BUILT.get_or_init(|| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nccl-probe");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
            let _ = fs::remove_dir_all(&folder);
            for name in ["", "second", "old", "driver"] {
                fs::create_dir_all(folder.join(name)).unwrap();
            }
            let stub = source.join("nccl_stub.c");
            let stub = stub.to_str().unwrap();
            for (out, more) in [
                ("libnccl.so.2", "-DCOPY=1"),
                ("second/libnccl.so.2", "-DCOPY=2"),
                ("old/libnccl.so.2", "-DOLD"),
                // The linker takes two files of one name for one: the second has its own.
                ("second/libnccl_other.so.2", "-DCOPY=2"),
            ] {
                let name = out.rsplit('/').next().unwrap();
                let soname = &format!("-Wl,-soname,{name}");
                gcc(&folder, &["-shared", "-fPIC", soname, more, "-o", out, stub, "-lpthread"]);
            }
            let c = |name: &str| source.join(name).to_str().unwrap().to_owned();
            let driver = "driver/libcuda.so.1";
            let cuda = "-Wl,-soname,libcuda.so.1";
            gcc(&folder, &["-shared", "-fPIC", cuda, "-o", driver, &c("cuda_stub.c")]);
            gcc(&folder, &["-shared", "-fPIC", "-o", "slow_disk.so", &c("slow_disk.c")]);
            // Linked to the stand-in, and to nothing (functions by name only).
            let libraries = ["-ldl", "-lpthread"];
            let linked = ["-L.", "-l:libnccl.so.2"];
            let (user, by_name, plugin) = (c("user.c"), c("by_name.c"), c("plugin.c"));
            gcc(&folder, &[&["-o", "user", &user][..], &linked, &libraries].concat());
            let with_driver = ["-Wl,--no-as-needed", "-Ldriver", "-l:libcuda.so.1"];
            let cuda = [&["-o", "user_cuda", &user][..], &linked, &libraries, &with_driver];
            gcc(&folder, &cuda.concat());
            gcc(&folder, &[&["-o", "by_name", &by_name][..], &libraries].concat());
            for (out, nccl) in [
                ("libplugin.so", "-l:libnccl.so.2"),
                ("second/libplugin.so", "-l:libnccl_other.so.2"),
            ] {
                let linked = ["-L.", "-Lsecond", nccl, "-Wl,-rpath,$ORIGIN"];
                gcc(&folder, &[&["-shared", "-fPIC", "-o", out, &plugin][..], &linked].concat());
            }
            Self { folder }
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn gcc(folder: &Path, arguments: &[&str]) {
    let done = Command::new("gcc").arg("-O1").args(arguments).current_dir(folder).output();
    let done = done.expect("gcc compiles the stand-ins; it is not there");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The probe that cargo built for these tests.
pub fn probe() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let probe = folder.parent().unwrap().join("libdeepxtrace_nccl_probe.so");
    assert!(probe.exists(), "{}", probe.display());
    probe
}

/// One run of a program under the probe.
pub struct Job {
    /// Holds `trace` and `stub.log`.
    pub folder: TempDir,
    rings: TempDir,
    variables: BTreeMap<String, OsString>,
    program: PathBuf,
}

impl Job {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rings = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut job =
            Self { variables: BTreeMap::new(), program: Built::get().path("user"), folder, rings };
        let trace = job.trace();
        job.set("DEEPXTRACE_TRACE_DIR", trace.as_os_str());
        job.set("DEEPXTRACE_RUN_ID", "r");
        job.set("RANK", "1");
        job.set("LOCAL_RANK", "1");
        job.set("WORLD_SIZE", "8");
        job.set("LD_PRELOAD", probe());
        job.set("LD_LIBRARY_PATH", &Built::get().folder);
        let rings = job.rings.path().to_owned();
        job.set("DEEPXTRACE_RING_DIR", rings);
        job
    }

    pub fn set(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.variables.remove(name);
        self
    }

    pub fn program(&mut self, program: impl Into<PathBuf>) -> &mut Self {
        self.program = program.into();
        self
    }

    /// Has the stand-in write down what arrives.
    pub fn log_calls(&mut self) -> &mut Self {
        let log = self.folder.path().join("stub.log");
        self.set("STUB_LOG", log)
    }

    /// Where the trace goes by default.
    pub fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// Ring files that exist.
    pub fn ring_files(&self) -> usize {
        fs::read_dir(self.rings.path()).unwrap().count()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().envs(&self.variables);
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    /// Runs to the end, which must be good.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let done = self.command(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {} {errors}", done.status);
        done
    }

    /// As [`Job::run`], with nothing said on standard error; returns the events.
    pub fn quiet(&self, arguments: &[&str]) -> Vec<Value> {
        let done = self.run(arguments);
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        self.events()
    }

    /// Writes what dead processes left to the trace. A process may die before it has made the folder.
    pub fn recover(&self) -> deepxtrace_nccl_ring::Recovered {
        fs::create_dir_all(self.trace()).unwrap();
        deepxtrace_nccl_ring::recover(&self.trace(), self.rings.path()).unwrap()
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.trace()) else { return Vec::new() };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// All lines of all trace files; each must be an object.
    pub fn events(&self) -> Vec<Value> {
        let text = self.files().into_iter().map(|path| fs::read_to_string(path).unwrap());
        let text: String = text.collect();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// As [`Job::events`] while a process is still writing: whole lines only.
    pub fn events_so_far(&self) -> Vec<Value> {
        let text = self.files().into_iter().map(|path| fs::read_to_string(path).unwrap());
        let text: String = text.collect();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Counts the lines that have all of these pieces, without reading them.
    pub fn count_lines(&self, pieces: &[&str]) -> usize {
        let text = self.files().into_iter().map(|path| fs::read_to_string(path).unwrap());
        let text: String = text.collect();
        text.lines().filter(|line| pieces.iter().all(|piece| line.contains(piece))).count()
    }

    /// Lines of the stand-in's log: copy, function, arguments.
    pub fn arrived(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("stub.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

pub fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_else(|| panic!("{field} in {event}"))
}

pub fn number(event: &Value, field: &str) -> i64 {
    event[field].as_i64().unwrap_or_else(|| panic!("{field} in {event}"))
}

/// Events of one kind.
pub fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

/// Events of one function and phase.
pub fn of_api<'a>(events: &'a [Value], api: &str, phase: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["api"] == api && event["phase"] == phase).collect()
}

/// Checks that the last word of a process says that nothing is missing.
pub fn assert_complete(events: &[Value]) {
    let told = events.iter().rfind(|event| event["event"] == "probe_status").unwrap();
    let calls = events.iter().filter(|event| event.get("api").is_some()).count();
    assert_eq!(number(told, "dropped_events"), 0);
    assert_eq!(number(told, "discarded_events"), 0);
    assert_eq!(number(told, "written_events"), i64::try_from(calls).unwrap());
}

/// Checks that every call that begins has returned, but `open`, and that numbers never repeat.
pub fn assert_paired(events: &[Value], open: usize) {
    let mut seen: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
    for event in events.iter().filter(|event| event.get("api").is_some()) {
        let entry = seen.entry(number(event, "call_seq")).or_default();
        match text(event, "phase") {
            "enter" => entry.0 += 1,
            // A communicator that came later than its call returned.
            _ if event["event"] == "comm_init" && entry.1 == 1 => {}
            _ => entry.1 += 1,
        }
    }
    assert!(seen.values().all(|(enters, exits)| *enters <= 1 && *exits <= 1));
    assert_eq!(seen.values().filter(|(_, exits)| *exits == 0).count(), open);
    let last = seen.keys().next_back().map_or(-1, |last| *last);
    assert_eq!(i64::try_from(seen.len()).unwrap(), last + 1, "numbers without a gap");
}
