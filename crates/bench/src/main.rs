//! Speed of the workspace, each figure beside its floor, measured in one run.
//!
//! `cargo xtask bench` builds and calls this program. `repeat` does one thing a given number of
//! times, so that the instructions of one are a difference of two runs under callgrind.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod dumps;
mod ll;
mod machine;
mod nccl;
mod normal;
mod timing;

use std::error::Error;
use std::process::ExitCode;

const HELP: &str = "\
deepxtrace-bench normal [LARGEST EP]    Normal windows (default up to 4096)
deepxtrace-bench ll [LARGEST EP]        low-latency matrices (default up to 4096)
deepxtrace-bench nccl [PERCENT]         NCCL traces (default 100 percent of 1.28 M lines each)
deepxtrace-bench dumps [PERCENT]        Flight Recorder dumps (default 100 percent of 64 x 10,000)
deepxtrace-bench repeat KIND SIZE REPEATS
    normal, ll, mean                    SIZE ranks; both rules of low latency, the mean rule
    parse, rounds, pairs, unnumbered, reader
                                        a trace of 8 ranks with SIZE calls, or rounds of a ring
    dumps, json-dumps                   two dumps of SIZE entries
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
        ["normal"] => normal::table(4096),
        ["normal", largest] => normal::table(largest.parse()?),
        ["ll"] => ll::table(4096),
        ["ll", largest] => ll::table(largest.parse()?),
        ["nccl"] => nccl::table(100),
        ["nccl", part] => nccl::table(part.parse()?),
        ["nccl-once", folder] => nccl::once(folder),
        ["dumps"] => dumps::table(100),
        ["dumps", part] => dumps::table(part.parse()?),
        ["dumps-once", folder] => dumps::once(folder),
        ["repeat", kind, size, repeats] => repeat(kind, size.parse()?, repeats.parse()?),
        _ => Err(HELP.into()),
    }
}

fn repeat(kind: &str, size: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    match kind {
        "normal" => normal::repeat(size, repeats),
        "ll" => ll::repeat(size, repeats),
        "mean" => ll::repeat_mean(size, repeats),
        "dumps" => dumps::repeat(false, size, repeats),
        "json-dumps" => dumps::repeat(true, size, repeats),
        "parse" | "rounds" | "pairs" | "unnumbered" | "reader" => nccl::repeat(kind, size, repeats),
        _ => Err(HELP.into()),
    }
}
