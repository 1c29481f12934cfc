//! The snapshots file: cumulative counters of a group over time, as NPZ.
//!
//! | entry | type | shape |
//! |---|---|---|
//! | `counters` | integer | `[W, N, 6 + 9N]`, cumulative, in time order |
//! | `timestamps_unix_ns` | integer | `[W]` |
//! | `ranks_per_node` | integer | scalar |
//! | `present` (optional) | bool | `[W, N]`, whose snapshot arrived |

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::bail;
use deepxtrace::counters::{Layout, MAX_EP_SIZE, Snapshot, Topology};
use deepxtrace_npz::{Archive, Array};

use super::artifacts::try_read;

const COUNTERS: &str = "counters";
const TIMESTAMPS: &str = "timestamps_unix_ns";
const RANKS_PER_NODE: &str = "ranks_per_node";
const PRESENT: &str = "present";

/// A snapshots file whose shapes are known to fit.
pub struct SnapshotFile {
    name: String,
    archive: Archive<BufReader<File>>,
    topology: Topology,
    timestamps_unix_ns: Vec<i64>,
    /// `[W, N]`; `None`: all arrived.
    present: Option<Vec<bool>>,
}

impl SnapshotFile {
    /// Opens a file and checks all but the counters themselves.
    ///
    /// # Errors
    ///
    /// The file is no NPZ archive, or an entry is missing or has another type or shape.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let mut archive = Archive::open(path)?;
        if !archive.contains(COUNTERS) && matches!(try_read(path), Ok(Some(_))) {
            bail!(
                "{}: one window, expected a file of snapshots (`normal analyze DIR` diagnoses the \
                 windows of a folder, `artifact show FILE` shows what was found in one)",
                path.display()
            );
        }
        let (snapshots, ep_size) = {
            let counters = archive.array(COUNTERS)?.expect_integers()?;
            counters_shape(&counters)?
        };
        let ranks_per_node = ranks_per_node(archive.array(RANKS_PER_NODE)?)?;
        let topology = Topology::new(ep_size, ranks_per_node)?;
        let timestamps_unix_ns =
            archive.array(TIMESTAMPS)?.expect_shape(&[snapshots])?.into_i64()?;
        let present = if archive.contains(PRESENT) {
            Some(archive.array(PRESENT)?.expect_shape(&[snapshots, ep_size])?.into_bool()?)
        } else {
            None
        };
        let name = path.display().to_string();
        Ok(Self { name, archive, topology, timestamps_unix_ns, present })
    }

    /// The group.
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// Number of snapshots.
    pub fn len(&self) -> usize {
        self.timestamps_unix_ns.len()
    }

    /// The first snapshot whose time is not after that of the one before.
    pub fn out_of_order(&self) -> Option<usize> {
        let backwards = |pair: &[i64]| matches!(pair, [before, after] if after <= before);
        Some(self.timestamps_unix_ns.windows(2).position(backwards)? + 1)
    }

    /// Begins to read the snapshots, one at a time.
    ///
    /// # Errors
    ///
    /// The file was changed in the meantime.
    pub fn snapshots(&mut self) -> anyhow::Result<Snapshots<'_>> {
        Ok(Snapshots {
            name: &self.name,
            topology: self.topology,
            timestamps_unix_ns: &self.timestamps_unix_ns,
            present: self.present.as_deref(),
            counters: Some(self.archive.array(COUNTERS)?.expect_integers()?),
            next: 0,
        })
    }
}

/// The number of snapshots and the EP size.
fn counters_shape(counters: &Array<'_>) -> anyhow::Result<(usize, usize)> {
    let &[snapshots, ep_size, length] = counters.shape() else {
        return Err(counters.mismatch("shape [W, N, 6 + 9N]").into());
    };
    match Layout::new(ep_size) {
        Ok(layout) if layout.vector_len() != length => {
            let expected = layout.vector_len();
            let text =
                format!("shape [W, N, 6 + 9N], that is [{snapshots}, {ep_size}, {expected}]");
            Err(counters.mismatch(text).into())
        }
        Ok(_) if snapshots == 0 => Err(counters.mismatch("at least one snapshot").into()),
        Ok(_) => Ok((snapshots, ep_size)),
        Err(_) => {
            let text = format!("shape [W, N, 6 + 9N] with N from 1 to {MAX_EP_SIZE}");
            Err(counters.mismatch(text).into())
        }
    }
}

fn ranks_per_node(array: Array<'_>) -> anyhow::Result<usize> {
    let file = array.file().to_owned();
    let value = array.into_scalar_i64()?;
    match usize::try_from(value) {
        Ok(ranks) if ranks > 0 => Ok(ranks),
        _ => bail!("{file}: entry {RANKS_PER_NODE}: found {value}, expected 1 or more"),
    }
}

/// The snapshots of a file, in order.
pub struct Snapshots<'a> {
    name: &'a str,
    topology: Topology,
    timestamps_unix_ns: &'a [i64],
    present: Option<&'a [bool]>,
    /// `None` at the end.
    counters: Option<Array<'a>>,
    next: usize,
}

impl Snapshots<'_> {
    /// Reads the next snapshot into `out`; false at the end.
    ///
    /// # Errors
    ///
    /// The data end early, do not match their checksum, or hold a negative counter of a rank that
    /// is present.
    pub fn read(&mut self, out: &mut Snapshot) -> anyhow::Result<bool> {
        let Some(&timestamp) = self.timestamps_unix_ns.get(self.next) else {
            return match self.counters.take() {
                Some(counters) => Ok(counters.finish().map(|()| false)?),
                None => Ok(false),
            };
        };
        let Some(counters) = &mut self.counters else { return Ok(false) };
        counters.read_i64(out.counters_mut())?;
        out.set_timestamp_unix_ns(timestamp);
        let ep_size = self.topology.ep_size();
        let flags = self.present.and_then(|present| present.chunks_exact(ep_size).nth(self.next));
        for rank in 0..ep_size {
            out.set_present(rank, flags.is_none_or(|flags| flags[rank]));
        }
        self.refuse_negative(out)?;
        self.next += 1;
        Ok(true)
    }

    fn refuse_negative(&self, snapshot: &Snapshot) -> anyhow::Result<()> {
        let layout = Layout::of(self.topology);
        let vectors = snapshot.counters().chunks_exact(layout.vector_len());
        for (rank, (vector, _)) in
            vectors.zip(snapshot.present()).enumerate().filter(|(_, (_, present))| **present)
        {
            let Some(offset) = vector.iter().position(|&value| value < 0) else { continue };
            let place = match layout.describe(offset) {
                Some((probe, counter, Some(src))) => format!("probe {probe}, {counter}[{src}]"),
                Some((probe, counter, None)) => format!("probe {probe}, {counter}"),
                None => format!("offset {offset}"),
            };
            bail!(
                "{}: entry {COUNTERS}: snapshot {}, rank {rank}, {place} is {}, expected 0 or \
                 more: cumulative counters begin at 0",
                self.name,
                self.next,
                vector[offset]
            );
        }
        Ok(())
    }
}
