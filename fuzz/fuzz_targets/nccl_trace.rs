//! Any bytes as the lines of traces, replayed and scanned at odd moments: nothing may panic, and the
//! state stays bounded.

#![no_main]

use deepxtrace_nccl_h2::{Analyzer, Config, Event, Moment, ReplaySession};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut analyzer = Analyzer::new("r", Config::default());
    let mut session = ReplaySession::default();
    let mut now: i64 = 0;
    for line in data.split(|&byte| byte == b'\n') {
        let Ok(text) = std::str::from_utf8(line) else { continue };
        // A session that was sent in.
        let _ = session.line(text);
        let Ok(event) = Event::parse(text) else { continue };
        let written = serde_json::to_string(&event).expect("an event can be written");
        assert_eq!(Event::parse(&written).as_ref(), Ok(&event));
        analyzer.ingest(&event, Moment { monotonic_ns: now, unix_ns: now });
        now = now.wrapping_add(line.len() as i64 * 1_000_000_000);
        analyzer.scan(Moment { monotonic_ns: now, unix_ns: now });
    }
    analyzer.finish(Moment { monotonic_ns: i64::MAX, unix_ns: i64::MAX });
});
