use crate::support::{Job, of_kind, probe};

/// Names a real `libnccl.so.2`, such as the one in the package nvidia-nccl-cu13: `.ci/run` installs
/// it, 300 MB; elsewhere this runs where someone has it.
const VARIABLE: &str = "DEEPXTRACE_TEST_NCCL";

const SCRIPT: &str = r#"
import ctypes, sys
for name in sys.argv[1:]:
    nccl = ctypes.CDLL(name)
    version, unique, result = ctypes.c_int(), (ctypes.c_byte * 128)(), ctypes.c_int()
    assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
    assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
    nccl.ncclGetErrorString.restype = ctypes.c_char_p
    words = nccl.ncclGetErrorString(5)
    assert words.startswith(b"invalid usage"), words
    assert nccl.ncclGroupStart() == 0 and nccl.ncclGroupEnd() == 0
    print(version.value, any(unique))
"#;

#[test]
fn a_real_nccl_loads_and_answers_through_the_probe() {
    let Some(nccl) = std::env::var_os(VARIABLE) else {
        eprintln!("skipped: {VARIABLE} does not name a libnccl.so.2");
        return;
    };
    let mut job = Job::new();
    job.program("python3").unset("LD_LIBRARY_PATH").set("NCCL_SOCKET_IFNAME", "lo");
    job.set("DEEPXTRACE_NCCL_LIBRARY", &nccl).set("DEEPXTRACE_WRAP_DLSYM", "1");
    let nccl = nccl.to_str().unwrap();
    // Behind the probe, and itself with the wrapper.
    let done = job.run(&["-c", SCRIPT, probe().to_str().unwrap(), nccl]);
    let out = String::from_utf8_lossy(&done.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], lines[1]);
    assert!(lines[0].starts_with('2') && lines[0].ends_with(" True"), "{out}");
    assert_eq!(of_kind(&job.events(), "nccl_call").len(), 2 * 4);
}
