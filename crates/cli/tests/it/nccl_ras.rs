//! `nccl ras` over a stub of NCCL's socket, and `nccl analyze` on saved answers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

use crate::run;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nccl-h2/tests/data/ras").join(name)
}

fn file(name: &str) -> String {
    data(name).to_str().unwrap().to_owned()
}

/// The JSON of a recorded answer, without the lines of the protocol.
fn recorded(name: &str) -> String {
    let text = fs::read_to_string(data(name)).unwrap();
    text[text.find('{').unwrap()..].to_owned()
}

/// Serves these answers, one a connection, and returns the port.
fn serve(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines {
                let reply = match line.unwrap().as_str() {
                    "CLIENT PROTOCOL 2" => "SERVER PROTOCOL 2\n",
                    "VERBOSE STATUS" => break,
                    _ => "OK\n",
                };
                stream.write_all(reply.as_bytes()).unwrap();
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    port.to_string()
}

#[test]
fn a_running_job_is_asked_and_the_rank_behind_is_named() {
    let port = serve(vec![recorded("missing.json"), recorded("missing.json")]);
    let ask = ["nccl", "ras", "--host", "127.0.0.1", "--port", &port];
    let text = run(ask);
    assert_eq!((text.code, text.err.as_str()), (Some(0), ""));
    let state = "1 communicator
  0x2da5fa23f52b3870: 2 of 2 ranks answer, 80 to 81 operations launched, ranks differ; one answer does not tell whether it moves

collective_missing_enter (suspected)
  Rank 1 has not entered ncclAllReduce in communicator 0x2da5fa23f52b3870.
";
    assert!(text.out.starts_with(state), "{}", text.out);
    assert!(
        text.out.contains("  The answers do not show that it stands still for long"),
        "{}",
        text.out
    );
    assert!(text.out.ends_with("  rank 1 is behind by 1 AllReduce\n"), "{}", text.out);
    let json = run(ask.iter().copied().chain(["--json", "--fail-on-findings"]));
    // What one more answer may take back does not count.
    assert_eq!(json.code, Some(0), "{}", json.err);
    assert_eq!(json.json()[0]["details"]["behind_by_comm_rank"]["1"]["AllReduce"], 1);
}

#[test]
fn watching_tells_a_finding_once() {
    let later = recorded("missing.json").replace("21:31:11", "21:31:21");
    let last = recorded("missing.json").replace("21:31:11", "21:32:30");
    let port = serve(vec![recorded("missing.json"), later, last]);
    let watched = run([
        "nccl",
        "ras",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--watch",
        "--interval",
        "0.01",
        "--count",
        "3",
        "--json",
        "--fail-on-findings",
    ]);
    assert_eq!((watched.code, watched.err.as_str()), (Some(1), ""));
    // Once suspected, and once observed, after it has stood still for longer than the timeout.
    let confidences: Vec<_> =
        watched.json().iter().map(|found| found["details"]["confidence"].clone()).collect();
    assert_eq!(confidences, ["suspected", "observed"]);
}

#[test]
fn a_raw_answer_can_be_kept_and_analyzed() {
    let port = serve(vec![recorded("missing.json")]);
    let raw = run(["nccl", "ras", "--host", "127.0.0.1", "--port", &port, "--raw"]);
    assert_eq!(raw.code, Some(0), "{}", raw.err);
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("answer");
    fs::write(&path, &raw.out).unwrap();
    let found = run(["nccl", "analyze", "--json", path.to_str().unwrap()]).json();
    assert_eq!(found[0]["details"]["missing_comm_ranks"], serde_json::json!([1]));
}

#[test]
fn saved_answers_are_recognized_and_judged_in_the_order_of_time() {
    let found = run(["nccl", "analyze", "--json", &file("dead_1.txt"), &file("dead_6.txt")]).json();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["hang_type"], "rank_heartbeat_timeout");
    assert_eq!(found[0]["details"]["heartbeat_age_s"], 15.0);
    let turned = run(["nccl", "analyze", &file("dead_6.txt"), &file("dead_1.txt")]);
    assert_eq!((turned.code, turned.out.as_str()), (Some(2), ""));
    assert!(turned.err.contains("give the answers in the order of time"), "{}", turned.err);
    let healthy = run(["nccl", "analyze", "--json", &file("healthy_split.json")]);
    assert_eq!((healthy.code, healthy.out.as_str()), (Some(0), ""), "{}", healthy.err);
}

#[test]
fn nobody_on_the_port_is_one_line_and_exit_code_2() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let run = run(["nccl", "ras", "--host", "127.0.0.1", "--port", &port, "--watch"]);
    assert_eq!((run.code, run.out.as_str(), run.err.lines().count()), (Some(2), "", 1));
    assert!(run.err.contains("cannot connect to 127.0.0.1"), "{}", run.err);
    assert_eq!(run.err.matches("refused").count(), 1, "{}", run.err);
}
