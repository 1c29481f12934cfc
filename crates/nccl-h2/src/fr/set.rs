//! The dumps of a job, with everything that ranks share numbered once.

use std::path::{Path, PathBuf};

use crate::fr::error::{Fault, FrError, Limits};
use crate::fr::intern::Interner;
use crate::fr::load::{self, Loaded, Reader};
use crate::fr::record::{Frame, Group, Record, Shape};

/// The Flight Recorder dumps of a job: one a rank.
///
/// ```no_run
/// use deepxtrace_nccl_h2::fr::{DumpSet, Options};
///
/// let set = DumpSet::read(&["dumps".into()])?;
/// for finding in set.analyze(&Options::default()).findings {
///     println!("{}", finding.to_json());
/// }
/// # Ok::<(), deepxtrace_nccl_h2::fr::FrError>(())
/// ```
#[derive(Debug)]
pub struct DumpSet {
    pub(crate) dumps: Vec<RankDump>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) stacks: Vec<Vec<Frame>>,
    pub(crate) groups: Vec<Group>,
    problems: Vec<FrError>,
}

/// The dump of one rank, with the numbers of the set.
#[derive(Debug)]
pub(crate) struct RankDump {
    pub(crate) rank: i64,
    pub(crate) path: PathBuf,
    pub(crate) version: (u32, u32),
    pub(crate) records: Vec<Record>,
    /// The groups that it knows, whether it has used them or not.
    pub(crate) groups: Vec<u32>,
    pub(crate) wrapped: bool,
    pub(crate) coverage: Coverage,
    /// Numbers of the records, those of one group together and in order.
    by_group: Vec<u32>,
}

/// What the dump of a rank says about calls that are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Every call of the rank is in the dump.
    Whole,
    /// Older calls were overwritten; from its first call on a group, every call is there.
    Recent,
    /// Calls are left out by design: what is not there proves nothing.
    Partial,
}

impl RankDump {
    /// The numbers of the records on a group, oldest first.
    pub(crate) fn records_of(&self, group: u32) -> &[u32] {
        let group_of = |number: &u32| self.records.get(*number as usize).map(|found| found.group);
        let start = self.by_group.partition_point(|number| group_of(number) < Some(group));
        let end = self.by_group.partition_point(|number| group_of(number) <= Some(group));
        self.by_group.get(start..end).unwrap_or_default()
    }

    /// A buffer that never went round holds every call, unless it was reset: then the numbers of
    /// calls go on while those of records begin again.
    fn find_coverage(&self, filtered: bool) -> Coverage {
        let begins_late = |numbers: &[u32]| {
            self.record(numbers.first()).is_some_and(|first| {
                let number = if first.p2p { first.p2p_seq } else { first.seq };
                number > 1
            })
        };
        let reset = || self.by_group.chunk_by(|a, b| self.same_group(*a, *b)).any(begins_late);
        if filtered {
            Coverage::Partial
        } else if self.wrapped || reset() {
            Coverage::Recent
        } else {
            Coverage::Whole
        }
    }

    fn record(&self, number: Option<&u32>) -> Option<&Record> {
        self.records.get(*number? as usize)
    }

    fn same_group(&self, a: u32, b: u32) -> bool {
        let group = |number| self.record(Some(&number)).map(|found| found.group);
        group(a) == group(b)
    }
}

impl DumpSet {
    /// Reads all dumps under the paths: files, or folders with one file a rank.
    ///
    /// Files that are no dumps are passed over. A file that is one and cannot be read is a
    /// [problem](Self::problems), and the others are read.
    ///
    /// # Errors
    /// A path that cannot be read, no dump at all, or two dumps of one rank.
    pub fn read(paths: &[PathBuf]) -> Result<Self, FrError> {
        Self::read_within(paths, &Limits::default())
    }

    /// [`read`](Self::read) with other limits.
    ///
    /// # Errors
    /// As there.
    pub fn read_within(paths: &[PathBuf], limits: &Limits) -> Result<Self, FrError> {
        let (loaded, mut problems) = load::load(paths, limits)?;
        if loaded.is_empty() {
            let path = paths.first().cloned().unwrap_or_default();
            return Err(problems.drain(..).next().unwrap_or(FrError::NoDumps { path }));
        }
        let mut set = assemble(loaded);
        set.problems = problems;
        Ok(set)
    }

    /// Reads dumps that are in memory, each with its rank. Of two dumps of one rank the first is
    /// taken.
    ///
    /// # Errors
    /// The rank of a dump that cannot be read, and why.
    pub fn from_memory(dumps: &[(i64, &[u8])], limits: &Limits) -> Result<Self, (i64, Fault)> {
        let mut reader = Reader::default();
        let mut loaded = Vec::with_capacity(dumps.len());
        for (rank, bytes) in dumps {
            let dump = reader.read(bytes, limits).map_err(|fault| (*rank, fault))?;
            loaded.push(Loaded { path: PathBuf::new(), rank: *rank, dump });
        }
        loaded.sort_by_key(|loaded| loaded.rank);
        loaded.dedup_by_key(|loaded| loaded.rank);
        Ok(assemble(loaded))
    }

    /// The ranks that have a dump, in order.
    pub fn ranks(&self) -> impl Iterator<Item = i64> + '_ {
        self.dumps.iter().map(|dump| dump.rank)
    }

    /// The file of a rank.
    pub fn path(&self, rank: i64) -> Option<&Path> {
        self.dumps.iter().find(|dump| dump.rank == rank).map(|dump| dump.path.as_path())
    }

    /// The ranks that the process groups name and that have no dump, in order.
    pub fn missing_ranks(&self) -> Vec<i64> {
        let mut missing: Vec<i64> =
            self.groups.iter().flat_map(|group| &group.ranks).copied().collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|rank| self.dump(*rank).is_none());
        missing
    }

    /// Files that look like dumps and could not be read.
    pub fn problems(&self) -> &[FrError] {
        &self.problems
    }

    /// Entries of all dumps.
    pub fn entries(&self) -> usize {
        self.dumps.iter().map(|dump| dump.records.len()).sum()
    }

    pub(crate) fn dump(&self, rank: i64) -> Option<&RankDump> {
        let place = self.dumps.binary_search_by_key(&rank, |dump| dump.rank).ok()?;
        self.dumps.get(place)
    }
}

/// Gives equal shapes, stacks and groups of all ranks one number.
pub(crate) fn assemble(loaded: Vec<Loaded>) -> DumpSet {
    let mut shapes = Interner::default();
    let mut stacks = Interner::default();
    let mut groups = Interner::default();
    let mut dumps = Vec::with_capacity(loaded.len());
    for Loaded { path, rank, dump } in loaded {
        let shape_numbers = renumber(&mut shapes, dump.shapes);
        let stack_numbers = renumber(&mut stacks, dump.stacks);
        let keyed = dump.groups.into_iter().map(|group| (group_key(&group), group)).collect();
        let group_numbers = renumber(&mut groups, keyed);
        let mut records = dump.records;
        for record in &mut records {
            record.shape = renumbered(&shape_numbers, record.shape);
            record.stack = renumbered(&stack_numbers, record.stack);
            record.group = renumbered(&group_numbers, record.group);
        }
        let filtered = dump.filtered;
        let mut by_group: Vec<u32> = (0..).take(records.len()).collect();
        by_group.sort_by_key(|number| records.get(*number as usize).map(|found| found.group));
        let mut dump = RankDump {
            rank,
            by_group,
            path,
            version: dump.version,
            records,
            groups: group_numbers,
            wrapped: dump.wrapped,
            coverage: Coverage::Whole,
        };
        dump.coverage = dump.find_coverage(filtered);
        dumps.push(dump);
    }
    DumpSet {
        dumps,
        shapes: shapes.into_things(),
        stacks: stacks.into_things(),
        groups: groups.into_things(),
        problems: Vec::new(),
    }
}

fn renumber<T>(interner: &mut Interner<T>, things: Vec<(Box<[u8]>, T)>) -> Vec<u32> {
    let number = |(key, thing): (Box<[u8]>, T)| {
        interner.number(&key, || Ok::<_, std::convert::Infallible>(thing)).unwrap_or_default()
    };
    things.into_iter().map(number).collect()
}

fn renumbered(numbers: &[u32], number: u32) -> u32 {
    numbers.get(number as usize).copied().unwrap_or_default()
}

/// A group is one by its name and ranks: groups of a split share a name.
fn group_key(group: &Group) -> Box<[u8]> {
    let mut key = group.name.as_bytes().to_vec();
    for rank in &group.ranks {
        key.push(0);
        key.extend_from_slice(&rank.to_le_bytes());
    }
    key.into()
}
