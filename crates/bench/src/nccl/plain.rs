//! The floor: serde_json alone over the same lines.

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde::Deserialize;

use super::{THREADS, files};

/// The fields of a call, as serde derives them.
#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, not used")]
struct Plain<'a> {
    schema_version: i64,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    run_id: Cow<'a, str>,
    timestamp_unix_ns: i64,
    timestamp_mono_ns: i64,
    #[serde(borrow)]
    hostname: Cow<'a, str>,
    rank: i64,
    local_rank: i64,
    world_size: i64,
    pid: i64,
    #[serde(borrow, default)]
    api: Cow<'a, str>,
    #[serde(borrow, default)]
    phase: Cow<'a, str>,
    #[serde(borrow, default)]
    comm_uid_hash: Cow<'a, str>,
    #[serde(default)]
    comm_rank: i64,
    #[serde(default)]
    comm_nranks: i64,
    #[serde(default)]
    comm_seq: i64,
    #[serde(default)]
    call_seq: i64,
    #[serde(default)]
    count: i64,
    #[serde(default)]
    datatype: i64,
    #[serde(default)]
    op: i64,
    #[serde(default)]
    root: i64,
    #[serde(default)]
    peer: i64,
    #[serde(default)]
    stream: i64,
    #[serde(default)]
    group_id: i64,
    #[serde(default)]
    group_op_index: i64,
    #[serde(default)]
    p2p_op_index: i64,
    #[serde(borrow, default)]
    p2p_op_index_scope: Cow<'a, str>,
    #[serde(default)]
    result: i64,
    #[serde(borrow, default)]
    result_name: Cow<'a, str>,
}

/// Seconds that serde_json alone needs for the lines of all files, on as many threads.
pub(super) fn plain(folder: &Path) -> Result<f64, Box<dyn Error>> {
    let files = files(folder)?;
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), String> {
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            parse(path)?;
        }
        Ok(())
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread failed".to_owned()))
        })
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

fn parse(path: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(|e| failed(&e))?);
    let mut rest = Vec::new();
    loop {
        let chunk = file.fill_buf().map_err(|e| failed(&e))?;
        let read = chunk.len();
        if read == 0 {
            return Ok(());
        }
        let end = chunk.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        rest.extend_from_slice(&chunk[..end]);
        let text = std::str::from_utf8(&rest).map_err(|e| failed(&e))?;
        for line in text.lines() {
            std::hint::black_box(serde_json::from_str::<Plain<'_>>(line).map_err(|e| failed(&e))?);
        }
        rest.clear();
        rest.extend_from_slice(&chunk[end..]);
        file.consume(read);
    }
}
