//! `nccl analyze` on PyTorch Flight Recorder dumps.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use tempfile::TempDir;

use deepxtrace_sim::nccl::{Job, write_folder};

use crate::run;

/// A folder with the unpacked dumps of a recording.
fn recorded(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let data =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nccl-h2/tests/data/fr").join(name);
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = Vec::new();
        GzDecoder::new(&fs::read(&path).unwrap()[..]).read_to_end(&mut bytes).unwrap();
        fs::write(folder.path().join(path.file_stem().unwrap()), bytes).unwrap();
    }
    folder
}

#[test]
fn a_mismatch_is_told_with_its_lines_and_the_exit_code_asked_for() {
    let folder = recorded("count");
    let folder = folder.path().to_str().unwrap();
    let text = run(["nccl", "analyze", folder]);
    assert_eq!((text.code, text.err.as_str()), (Some(0), ""));
    let expected = "2 dumps, 168 entries: 81 collectives and 2 sends compared

collective_signature_mismatch (confirmed)
  The ranks call the same function with different parameters in communicator 0, call 81.
  rank 0: ncclAllReduce of 1024 x float32
  rank 1: ncclAllReduce of 2048 x float32
";
    let place = "  process group 0 (default_pg) of ranks 0-1
  rank 0 called nccl:all_reduce 81, nccl_scenarios.py:65 in <module>
  rank 1 called nccl:all_reduce 81, nccl_scenarios.py:65 in <module>
";
    assert!(text.out.starts_with(expected) && text.out.ends_with(place), "{}", text.out);
    let json = run(["nccl", "analyze", "--format", "fr", "--json", "--fail-on-findings", folder]);
    assert_eq!(json.code, Some(1), "{}", json.err);
    let found = json.json();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["hang_type"], "collective_signature_mismatch");
    assert_eq!(found[0]["details"]["mismatch_type"], "parameter_mismatch");
    assert_eq!(found[0]["details"]["call_sites"][0]["frames"][2]["line"], 65);
}

#[test]
fn a_healthy_job_has_no_object_and_no_bad_exit() {
    let folder = recorded("healthy");
    let run =
        run(["nccl", "analyze", "--json", "--fail-on-findings", folder.path().to_str().unwrap()]);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
}

#[test]
fn standing_still_makes_a_missing_enter_an_observation() {
    let folder = recorded("missing");
    let folder = folder.path().to_str().unwrap();
    let run = run(["nccl", "analyze", "--json", "--stood-still", "600", folder]);
    let found = run.json();
    assert_eq!(found[0]["hang_type"], "collective_missing_enter");
    assert_eq!(found[0]["details"]["missing_comm_ranks"], serde_json::json!([1]));
    assert_eq!(found[0]["details"]["confidence"], "observed");
}

#[test]
fn a_missing_and_a_broken_dump_are_named() {
    let folder = recorded("missing");
    fs::write(folder.path().join("fr_rank_1.pickle"), b"\x80\x02cos\nsystem\n").unwrap();
    let path = folder.path().to_str().unwrap();
    let json = run(["nccl", "analyze", "--json", path]);
    assert_eq!((json.code, json.out.as_str()), (Some(2), ""));
    let [one, missing, open, broken] = json.err.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", json.err)
    };
    let alone = "only one dump was read, of rank 0: there is nothing to compare it with";
    assert_eq!(one, format!("deepxtrace: warning: {alone}"));
    assert_eq!(missing, "deepxtrace: warning: no dump of rank 1: nothing is said about it");
    assert!(open.contains("not over on rank 0; if the job hangs there, it waits for rank 1, or"));
    assert!(broken.contains("fr_rank_1.pickle") && broken.contains("would run code"), "{broken}");
    assert!(broken.ends_with("; the findings lack what it holds"), "{broken}");
    // People read that nothing was compared, and not that nothing differs.
    let text = run(["nccl", "analyze", path]);
    assert_eq!((text.code, text.err.lines().count()), (Some(2), 1), "{}", text.err);
    let expected = format!(
        "1 dump, 84 entries: 0 collectives and 0 sends compared
nothing could be compared
{alone}
no dump of rank 1: nothing is said about it
"
    );
    assert!(text.out.starts_with(&expected), "{}", text.out);
}

#[test]
fn the_findings_of_good_dumps_are_printed_though_another_is_broken() {
    let folder = recorded("count");
    fs::write(folder.path().join("fr_rank_2.pickle"), b"\x80\x02cos\nsystem\n").unwrap();
    let path = folder.path().to_str().unwrap();
    let run = run(["nccl", "analyze", "--json", path]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.json()[0]["hang_type"], "collective_signature_mismatch");
    assert!(run.err.contains("fr_rank_2.pickle"), "{}", run.err);
}

#[test]
fn a_call_that_was_left_out_is_told_once_with_both_explanations() {
    let folder = recorded("skip");
    let text = run(["nccl", "analyze", folder.path().to_str().unwrap()]);
    assert_eq!((text.code, text.err.as_str()), (Some(0), ""));
    let expected = "2 dumps, 43 entries: 21 collectives and 0 sends compared

sequence_divergence (unknown)
  The calls of the ranks of communicator 0 go apart, and 2 explanations are equally short.
  either rank 0 made ncclAllGather of 64 x float32 in addition, as call 10
  either rank 1 left out ncclAllGather of 64 x float32, as call 10
  all ranks agree up to call 9: ncclBroadcast of 32 x float32
  13 rounds are explained by it
";
    assert!(text.out.starts_with(expected), "{}", text.out);
}

#[test]
fn of_traces_and_dumps_in_one_folder_the_command_says_what_it_takes() {
    let folder = recorded("count");
    let job = Job::collectives(2, 5).with_run_id("a");
    write_folder(&job, &folder.path().join("job/tracing/a")).unwrap();
    let path = folder.path().to_str().unwrap();
    let dumps = run(["nccl", "analyze", path]);
    assert_eq!(dumps.code, Some(0));
    assert!(dumps.out.starts_with("2 dumps, "), "{}", dumps.out);
    let told = "traces lie beside the Flight Recorder dumps, and the dumps were taken; for the \
                traces: --format trace";
    assert_eq!(dumps.err, format!("deepxtrace: warning: {path}: {told}\n"));
    let given = run(["nccl", "analyze", "--format", "fr", path]);
    assert_eq!(given.err, "");
    // The other way round: the folder of a run with dumps below it.
    let inner = folder.path().join("job");
    fs::create_dir(inner.join("dumps")).unwrap();
    let name = "fr_rank_0.pickle";
    fs::copy(folder.path().join(name), inner.join("dumps").join(name)).unwrap();
    let traces = run(["nccl", "analyze", inner.to_str().unwrap()]);
    assert_eq!(traces.code, Some(0));
    assert!(traces.out.starts_with("run a in "), "{}", traces.out);
    assert!(traces.err.contains("for the dumps: --format fr"), "{}", traces.err);
}

#[test]
fn what_cannot_be_used_is_one_line_and_exit_code_2() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap();
    let refused = |arguments: &[&str]| {
        let run = run([&["nccl", "analyze"], arguments].concat());
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        run.err
    };
    let err = refused(&["--format", "fr", path]);
    assert!(err.contains("holds no Flight Recorder dump"), "{err}");
    let err = refused(&["--format", "fr", &format!("{path}/none")]);
    assert!(err.contains("cannot read") && err.contains("No such file"), "{err}");
    // Without dumps and answers it is a trace that is looked for.
    let err = refused(&[path]);
    assert!(err.contains("no trace file"), "{err}");
    let err = refused(&["--stood-still=-1", "--format", "fr", path]);
    assert!(err.contains("--stood-still is -1"), "{err}");
    let err = refused(&["--collective-timeout-s", "0", "--format", "fr", path]);
    assert!(err.contains("collective_timeout_s is 0"), "{err}");
}
