//! Answers of RAS, and the client over a stub of its socket.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use deepxtrace_nccl_h2::ras::{Answer, Client, Motion, Options, RasError, RasReport, judge};
use deepxtrace_nccl_h2::{Confidence, Config, Details, HangType, Heartbeats, Settings};
use serde_json::{Value, json};

fn recorded(name: &str) -> Answer {
    let path = format!("{}/tests/data/ras/{name}", env!("CARGO_MANIFEST_DIR"));
    Answer::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// An answer at so many seconds after noon, of one communicator with (AllReduce, AllGather) counts.
fn answer(second: u32, counts: &[[i64; 2]]) -> Answer {
    let ranks: Vec<Value> = (0..)
        .zip(counts)
        .map(|(rank, [reduces, gathers])| {
            json!({
                "rank": rank, "host": "a", "pid": 100 + rank,
                "collective_counts": {"AllReduce": reduces, "AllGather": gathers},
            })
        })
        .collect();
    let time = format!("2026-01-01 12:{:02}:{:02}", second / 60, second % 60);
    let communicator = json!({"hash": "0xa", "size": counts.len(), "ranks": ranks});
    let answer = json!({"timestamp": time, "communicators": [communicator]});
    Answer::parse(&answer.to_string()).unwrap()
}

fn judged(answers: &[Answer]) -> RasReport {
    judge(answers, &Options::default()).unwrap()
}

#[test]
fn a_recorded_healthy_job_has_no_finding() {
    let report = judged(&[recorded("healthy_split.json")]);
    assert_eq!(report.findings, []);
    assert_eq!(report.communicators.len(), 2);
    for state in &report.communicators {
        assert!(state.agree);
        assert_eq!(state.motion, Motion::OneAnswer);
        assert!(!state.to_string().contains("OK"), "{state}");
    }
}

#[test]
fn the_recorded_missing_rank_is_behind_by_one_all_reduce() {
    let report = judged(&[recorded("missing.json")]);
    assert_eq!(report.findings.len(), 1);
    let found = &report.findings[0];
    assert_eq!(found.behind, [(1, "AllReduce".to_owned(), 1)]);
    assert_eq!(found.finding.hang_type, HangType::CollectiveMissingEnter);
    assert_eq!(found.finding.comm_uid_hash, "0x2da5fa23f52b3870");
    let Details::CollectiveMissingEnter(details) = &found.finding.details else { panic!() };
    assert_eq!(details.api, "ncclAllReduce");
    assert_eq!(details.entered_comm_ranks, [0]);
    assert_eq!(details.missing_comm_ranks, [1]);
    assert_eq!(details.missing_rank_status[0].rank, Some(1));
    assert_eq!(details.missing_rank_status[0].heartbeat, Heartbeats::Alive);
    // One answer: nobody knows whether the job stands still.
    assert_eq!(details.confidence, Confidence::Suspected);
    assert!(details.trace_ended_early);
    let json: Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json["details"]["behind_by_comm_rank"], json!({"1": {"AllReduce": 1}}));
    assert_eq!(json["hang_type"], "collective_missing_enter");
}

#[test]
fn a_recorded_killed_rank_is_missing_and_its_malformed_json_is_mended() {
    let answers = [recorded("dead_1.txt"), recorded("dead_6.txt")];
    let report = judged(&answers);
    assert_eq!(report.mended, 2);
    assert_eq!(report.findings.len(), 1);
    let found = &report.findings[0];
    assert_eq!(found.process, Some(("192.0.2.2".to_owned(), 2051)));
    assert_eq!(found.communicators, ["0x6b0889ab66d66b84"]);
    let Details::RankHeartbeatTimeout(details) = &found.finding.details else { panic!() };
    assert_eq!((details.rank, details.pid), (1, 2051));
    assert_eq!(details.heartbeat_age_s, 15.0);
}

#[test]
fn ranks_that_differ_in_a_running_job_are_no_finding() {
    let answers = [answer(0, &[[5, 5], [5, 4]]), answer(10, &[[9, 9], [9, 8]])];
    let report = judged(&answers);
    assert_eq!(report.findings, []);
    assert_eq!(report.communicators[0].motion, Motion::Moving);
    assert!(!report.communicators[0].agree);
}

#[test]
fn ranks_that_differ_while_nothing_moves_are_behind() {
    let counts = [[5, 4], [5, 3], [5, 4], [4, 3]];
    let early = [answer(0, &[[4, 4]; 4]), answer(1, &counts), answer(60, &counts)];
    let details = |answers: &[Answer]| match &judged(answers).findings[..] {
        [only] => match &only.finding.details {
            Details::CollectiveMissingEnter(details) => (details.clone(), only.behind.clone()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let (found, behind) = details(&early);
    let gather = |rank| (rank, "AllGather".to_owned(), 1);
    assert_eq!(behind, [gather(1), gather(3), (3, "AllReduce".to_owned(), 1)]);
    assert_eq!(found.missing_comm_ranks, [1, 3]);
    assert_eq!(found.entered_comm_ranks, [0, 2]);
    assert_eq!(found.api, "ncclAllGather|ncclAllReduce");
    // 59 s are less than the 60 s of the timeout.
    assert_eq!((found.waited_s, found.confidence), (59.0, Confidence::Suspected));
    assert!(found.trace_ended_early);

    let late = [answer(0, &counts), answer(60, &counts)];
    let (found, _) = details(&late);
    assert_eq!((found.waited_s, found.confidence), (60.0, Confidence::Observed));
    assert!(!found.trace_ended_early);
}

#[test]
fn a_rank_that_is_left_behind_by_a_moving_job_is_suspected_after_the_timeout() {
    let at = |second, ahead| answer(second, &[[ahead, 0], [3, 0]]);
    assert_eq!(judged(&[at(0, 4), at(59, 5)]).findings, []);
    let report = judged(&[at(0, 4), at(30, 5), at(60, 6)]);
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].behind, [(1, "AllReduce".to_owned(), 3)]);
    assert_eq!(report.findings[0].finding.confidence(), Confidence::Suspected);
}

#[test]
fn ranks_that_are_each_ahead_in_something_have_called_different_operations() {
    // Rank 2 has called an all-reduce where the others called an all-gather.
    let counts = [[5, 5], [5, 5], [6, 4]];
    let report = judged(&[answer(0, &counts), answer(90, &counts)]);
    assert_eq!(report.findings.len(), 1);
    let Details::SignatureMismatch(details) = &report.findings[0].finding.details else { panic!() };
    let apis = details.api_by_comm_rank.clone().unwrap();
    let expected = [(0, "ncclAllGather"), (1, "ncclAllGather"), (2, "ncclAllReduce")];
    assert_eq!(apis, expected.map(|(rank, api)| (rank, api.to_owned())));
    assert_eq!(details.confidence, Confidence::Suspected);
}

#[test]
fn a_job_that_stands_still_with_equal_counts_is_never_called_well() {
    let still = |seconds| judged(&[answer(0, &[[7, 7]; 4]), answer(seconds, &[[7, 7]; 4])]);
    let report = still(299);
    assert_eq!(report.findings, []);
    let text = report.communicators[0].to_string();
    assert!(text.contains("nothing launched for 299 s: idle, or hung on its devices"), "{text}");
    let report = still(300);
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].finding.hang_type, HangType::NoProgress);
    assert_eq!(report.findings[0].finding.confidence(), Confidence::Suspected);
}

#[test]
fn timeouts_are_those_of_the_settings() {
    let settings = Settings { collective_timeout_s: Some(5.0), ..Settings::default() };
    let options = Options { config: settings.resolve().unwrap(), run_id: "r".to_owned() };
    let counts = [[1, 0], [0, 0]];
    let report = judge(&[answer(0, &counts), answer(5, &counts)], &options).unwrap();
    assert_eq!(report.findings[0].finding.confidence(), Confidence::Observed);
    assert_eq!(report.findings[0].finding.run_id, "r");
    assert_ne!(options.config, Config::default());
}

#[test]
fn ranks_in_error_are_named_and_in_progress_is_no_error() {
    let with = |async_error: i64, init_state: i64| {
        let status = json!({"async_error": async_error, "init_state": init_state});
        let rank = json!({"rank": 3, "host": "h", "pid": 9, "status": status});
        let answer = json!({"communicators": [{"hash": "0x1", "size": 4, "ranks": [rank]}]});
        judged(&[Answer::parse(&answer.to_string()).unwrap()])
    };
    assert_eq!(with(0, 0).findings, []);
    assert_eq!(with(7, 7).findings, []);
    let found = with(6, 0).findings.remove(0);
    let Details::ErrorExit(details) = &found.finding.details else { panic!() };
    assert_eq!((details.comm_rank, details.pid, details.result), (Some(3), 9, 6));
    assert_eq!(details.result_name, "ncclRemoteError");
    assert_eq!(details.error_category, "remote_error");
    let found = with(0, 2).findings.remove(0);
    let Details::ErrorExit(details) = &found.finding.details else { panic!() };
    assert_eq!((details.api.as_str(), details.result), ("ncclCommInitRank", 2));
}

#[test]
fn answers_must_be_in_the_order_of_time() {
    let error = judge(&[answer(10, &[[0, 0]]), answer(9, &[[0, 0]])], &Options::default());
    let text = error.unwrap_err().to_string();
    let expected = "answer 2 is of 2026-01-01 12:00:09, before answer 1 of 2026-01-01 12:00:10: \
                    give the answers in the order of time";
    assert_eq!(text, expected);
}

#[test]
fn the_order_of_ranks_and_communicators_does_not_matter_for_what_is_found() {
    let mut turned = recorded("missing.json");
    turned.communicators[0].ranks.reverse();
    assert_eq!(judged(&[turned]).findings, judged(&[recorded("missing.json")]).findings);
}

#[test]
fn time_stamps_are_read_as_utc() {
    let seconds =
        |time: &str| Answer::parse(&json!({"timestamp": time}).to_string()).unwrap().timestamp_s();
    // By date -u -d '...' +%s.
    assert_eq!(seconds("1970-01-01 00:00:00"), Some(0));
    assert_eq!(seconds("2000-03-01 00:00:00"), Some(951_868_800));
    assert_eq!(seconds("2026-11-29 21:31:11"), Some(1_795_987_871));
    assert_eq!(seconds("2100-03-01 12:00:00"), Some(4_107_585_600));
    for bad in ["", "2026-11-29", "2026-13-01 00:00:00", "x-y-z a:b:c", "2026-11-29 24:00:00"] {
        assert_eq!(seconds(bad), None, "{bad}");
    }
}

#[test]
fn what_is_no_answer_is_an_error_that_shows_it() {
    for text in ["", "SERVER PROTOCOL 2\nOK\nNCCL version 2.24\n", "{\"communicators\": [", "[]"] {
        let error = Answer::parse(text).unwrap_err();
        assert!(matches!(error, RasError::NoJson { .. }), "{text}: {error}");
    }
}

#[test]
fn unknown_and_odd_fields_do_no_harm() {
    let text = r#"{"new": [1], "nccl_version": 3, "communicators": [{"hash": 5, "size": "8",
        "ranks": [{"rank": null, "pid": "7", "new": {}}], "missing_ranks": [{}]}]}"#;
    let answer = Answer::parse(text).unwrap();
    let communicator = &answer.communicators[0];
    assert_eq!((communicator.hash.as_str(), communicator.size), ("5", 8));
    assert_eq!((communicator.ranks[0].rank, communicator.ranks[0].pid), (-1, 7));
    assert_eq!(communicator.missing_ranks[0].rank, -1);
}

/// Serves one connection: answers each line as the list says, then sends the rest.
fn stub(lines: &'static [(&'static str, &'static str)], rest: Vec<u8>) -> (Client, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for (expected, answer) in lines {
            let mut line = Vec::new();
            let mut byte = [0_u8; 1];
            while stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
                line.push(byte[0]);
            }
            assert_eq!(String::from_utf8(line).unwrap(), *expected);
            stream.write_all(answer.as_bytes()).unwrap();
        }
        // The client may have gone away.
        let _ = stream.write_all(&rest);
    });
    let timeout = Duration::from_secs(3);
    (Client { host: "127.0.0.1".to_owned(), port, timeout, ..Client::default() }, server)
}

const HELLO: (&str, &str) = ("CLIENT PROTOCOL 2", "SERVER PROTOCOL 2\n");

#[test]
fn the_client_asks_for_json_and_reads_to_the_end() {
    let path = format!("{}/tests/data/ras/missing.json", env!("CARGO_MANIFEST_DIR"));
    let recorded = std::fs::read(path).unwrap();
    let (client, server) = stub(
        &[HELLO, ("TIMEOUT 2", "OK\n"), ("SET FORMAT json", "OK\n"), ("VERBOSE STATUS", "")],
        recorded,
    );
    let text = client.ask().unwrap();
    server.join().unwrap();
    let report = judged(&[Answer::parse(&text).unwrap()]);
    assert_eq!(report.findings[0].behind, [(1, "AllReduce".to_owned(), 1)]);
}

#[test]
fn a_ras_without_json_is_named_as_too_old() {
    let (client, server) = stub(
        &[HELLO, ("TIMEOUT 2", "OK\n"), ("SET FORMAT json", "ERROR: Unknown command SET\n")],
        Vec::new(),
    );
    let text = client.ask().unwrap_err().to_string();
    server.join().unwrap();
    assert_eq!(
        text,
        "RAS refused \"SET FORMAT json\": \"ERROR: Unknown command SET\"; answers in JSON need \
         NCCL 2.28 or later"
    );
}

#[test]
fn something_else_on_the_port_is_named() {
    let (client, server) = stub(&[("CLIENT PROTOCOL 2", "HTTP/1.1 400 Bad Request\r\n")], vec![]);
    let error = client.ask().unwrap_err();
    server.join().unwrap();
    assert!(
        matches!(error, RasError::NoRas { ref answer, .. } if answer == "HTTP/1.1 400 Bad Request")
    );
}

#[test]
fn a_line_without_an_end_is_not_read_for_ever() {
    let (client, server) = stub(&[], vec![b'x'; 1 << 20]);
    let error = client.ask().unwrap_err();
    server.join().unwrap();
    assert!(matches!(error, RasError::NoRas { ref answer, .. } if answer.len() == 200), "{error}");
}

#[test]
fn an_answer_beyond_the_limit_is_refused() {
    let (mut client, server) = stub(
        &[HELLO, ("TIMEOUT 2", "OK\n"), ("SET FORMAT json", "OK\n"), ("VERBOSE STATUS", "")],
        vec![b'{'; 1 << 20],
    );
    client.max_bytes = 100_000;
    let error = client.ask().unwrap_err();
    server.join().unwrap();
    assert!(matches!(error, RasError::TooLarge { limit: 100_000, .. }), "{error}");
}

#[test]
fn a_stopped_process_is_a_timeout_within_the_time_given() {
    // It accepts the connection in the kernel and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let timeout = Duration::from_millis(300);
    let client = Client { host: "127.0.0.1".to_owned(), port, timeout, ..Client::default() };
    let start = Instant::now();
    let error = client.ask().unwrap_err();
    assert!(matches!(error, RasError::TimedOut { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn nobody_on_the_port_is_an_error_that_says_how_ras_is_set() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client = Client { host: "127.0.0.1".to_owned(), port, ..Client::default() };
    let text = client.ask().unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot connect to 127.0.0.1:{port} (NCCL")), "{text}");
    assert!(text.contains("NCCL_RAS_ENABLE"), "{text}");
}
