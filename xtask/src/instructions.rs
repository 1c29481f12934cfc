//! Instructions of the hot paths, counted by callgrind and compared with those that are kept in the
//! repository: a regression shows on a machine that is too busy to time anything.
//!
//! Counts hold for one compiler, one release profile, one C library and one set of CPU features, which
//! the file names. Elsewhere the comparison is shown and never fails.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{answers, root};

/// What is counted: kind, size, and by what the count is divided in the table.
const COUNTED: [(&str, u64, Unit); 13] = [
    ("normal", 16, Unit::Cell),
    ("normal", 64, Unit::Cell),
    ("normal", 256, Unit::Cell),
    ("ll", 64, Unit::Cell),
    ("ll", 256, Unit::Cell),
    ("mean", 256, Unit::Cell),
    ("parse", 500, Unit::Call),
    ("rounds", 500, Unit::Call),
    ("pairs", 250, Unit::Ring),
    ("unnumbered", 250, Unit::Ring),
    ("reader", 500, Unit::Call),
    ("dumps", 200, Unit::Entry),
    ("json-dumps", 200, Unit::Entry),
];

/// One run repeats this often more than the other: the difference leaves out how a run begins.
const MORE: u64 = 4;

/// Percent by which a count may differ: tables of hashes begin elsewhere in every run (2 %), and what
/// the compiler inlines depends on code that is not counted (5 % seen in the parser).
const TOLERANCE: f64 = 10.0;

#[derive(Clone, Copy)]
enum Unit {
    Cell,
    Call,
    Ring,
    Entry,
}

impl Unit {
    /// What the counts are divided by, and its name.
    fn of(self, size: u64) -> (u64, &'static str) {
        match self {
            Self::Cell => (size * size, "cell"),
            // Eight ranks; a call enters and returns; a round of a ring has a send and a receive.
            Self::Call => (8 * size * 2, "line"),
            Self::Ring => (8 * size * 4, "line"),
            Self::Entry => (2 * size, "call"),
        }
    }
}

/// The file of counts that are kept.
fn kept() -> PathBuf {
    root().join("crates/bench/instructions.txt")
}

/// Counts, prints, and fails where a count is beyond the tolerance above the one that is kept, if
/// that was counted with the same tools.
pub fn compare(program: &Path) -> Result<(), String> {
    if !answers("valgrind", &["--version"]) {
        println!("skipped: instruction counts (no valgrind on this machine)");
        return Ok(());
    }
    let text = std::fs::read_to_string(kept()).unwrap_or_default();
    let tools = tools();
    let same = text.lines().next() == Some(tools.as_str());
    println!(
        "Instructions (callgrind)\n\n| what | size | instructions | that is | kept | change |"
    );
    println!("|---|---|---|---|---|---|");
    let mut worse = Vec::new();
    for (kind, size, unit) in COUNTED {
        let count = count(program, kind, size)?;
        let (parts, name) = unit.of(size);
        let change = kept_count(&text, kind, size).map(|kept| change(kept, count));
        let shown = kept_count(&text, kind, size).map_or("-".to_owned(), |kept| kept.to_string());
        let percent = change.map_or("-".to_owned(), |change| format!("{change:+.1} %"));
        println!(
            "| {kind} | {size} | {count} | {:.1} a {name} | {shown} | {percent} |",
            count as f64 / parts as f64
        );
        if change.is_some_and(|change| change > TOLERANCE) {
            worse.push(format!("{kind} {size} {percent}"));
        }
    }
    println!();
    let all = worse.join(", ");
    if !same {
        println!(
            "not judged: the counts that are kept are of {}",
            text.lines().next().unwrap_or("nothing")
        );
        println!("these are of {tools}");
        return Ok(());
    }
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {TOLERANCE} % more instructions than in {}: {all}\n\
         if that is meant: cargo xtask bench instructions save",
        kept().display()
    ))
}

/// Counts and keeps the counts.
pub fn save(program: &Path) -> Result<(), String> {
    let mut text = tools() + "\n";
    for (kind, size, _) in COUNTED {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{kind} {size} {}", count(program, kind, size)?);
    }
    let path = kept();
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// What the counts depend on.
fn tools() -> String {
    let first = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
    };
    let rustc = first("rustc", &["--version"]).unwrap_or_default();
    let libc = first("ldd", &["--version"]).unwrap_or_default();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    let features: Vec<&str> = ["avx2", "fma", "erms"].into_iter().filter(|f| has(f)).collect();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap_or_default();
    let profile = release_profile(&manifest);
    format!("{rustc}; {profile}; {libc}; {} {}", std::env::consts::ARCH, features.join(" "))
}

/// The release profile of a manifest in one line.
fn release_profile(manifest: &str) -> String {
    let lines = manifest.lines().skip_while(|line| line.trim() != "[profile.release]").skip(1);
    let lines = lines.map(str::trim).take_while(|line| !line.starts_with('['));
    let settings: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    settings.join(", ")
}

fn kept_count(text: &str, kind: &str, size: u64) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let same = words.next() == Some(kind) && words.next()?.parse() == Ok(size);
        if same { words.next()?.parse().ok() } else { None }
    })
}

/// Percent from one count to another.
fn change(from: u64, to: u64) -> f64 {
    (to as f64 / (from as f64).max(1.0) - 1.0) * 100.0
}

fn count(program: &Path, kind: &str, size: u64) -> Result<u64, String> {
    let run = |repeats: u64| callgrind(program, kind, size, repeats);
    Ok(run(1 + MORE)?.saturating_sub(run(1)?) / MORE)
}

fn callgrind(program: &Path, kind: &str, size: u64, repeats: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["repeat", kind, &size.to_string(), &repeats.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{kind} {size} under valgrind:\n{text}"));
    }
    text.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| format!("valgrind gave no count for {kind} {size}:\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::{change, kept_count, release_profile};

    #[test]
    fn the_release_profile_is_one_line() {
        let text = "[profile.release]\n# why\nlto = \"thin\"\n\ndebug = 1\n[other]\nx = 1\n";
        assert_eq!(release_profile(text), "lto = \"thin\", debug = 1");
        assert_eq!(release_profile("[package]\n"), "");
    }

    #[test]
    fn counts_are_found_by_kind_and_size() {
        let text = "rustc 1; glibc 2; x86_64\nnormal 16 500\nnormal 64 9000\n";
        assert_eq!(kept_count(text, "normal", 64), Some(9000));
        assert_eq!(kept_count(text, "ll", 64), None);
        assert_eq!(change(200, 210).round(), 5.0);
        assert_eq!(change(200, 100).round(), -50.0);
    }
}
