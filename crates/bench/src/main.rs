//! Speed of the workspace, each figure beside its floor, measured in one run.
//!
//! `cargo xtask bench` builds and calls this program. `repeat` does one thing a given number of
//! times, so that the instructions of one are a difference of two runs under callgrind.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod ll;
mod nccl;
mod normal;
mod timing;

use std::error::Error;
use std::process::ExitCode;

const HELP: &str = "\
deepxtrace-bench normal [LARGEST EP]    Normal windows (default up to 1024)
deepxtrace-bench ll [LARGEST EP]        low-latency matrices (default up to 1024)
deepxtrace-bench nccl [PERCENT]         NCCL traces (default 100 percent of 1.28 M lines each)
deepxtrace-bench repeat normal|ll EP REPEATS
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    match arguments {
        ["normal"] => normal::table(1024),
        ["normal", largest] => normal::table(largest.parse()?),
        ["ll"] => ll::table(1024),
        ["ll", largest] => ll::table(largest.parse()?),
        ["nccl"] => nccl::table(100),
        ["nccl", part] => nccl::table(part.parse()?),
        ["nccl-once", folder] => nccl::once(folder),
        ["repeat", "normal", ranks, repeats] => normal::repeat(ranks.parse()?, repeats.parse()?),
        ["repeat", "ll", ranks, repeats] => ll::repeat(ranks.parse()?, repeats.parse()?),
        _ => Err(HELP.into()),
    }
}
