//! Whatever text stands for an answer of RAS: reading it ends, and what was read can be judged.

#![no_main]

use deepxtrace_nccl_h2::ras::{Answer, Options, judge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(answer) = Answer::parse(text) {
        let turned = [answer.clone(), answer];
        if let Ok(report) = judge(&turned, &Options::default()) {
            for found in &report.findings {
                assert!(found.to_json().starts_with('{'));
            }
            for state in &report.communicators {
                assert!(!state.to_string().is_empty());
            }
        }
    }
});
