//! Creations of communicators: who has called, and who has to.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::names::Name;
use super::operation::Creation;
use super::process::ProcessId;

/// Names one creation: all ranks that take part know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct CreationKey {
    pub(crate) kind: Creation,
    /// The new communicator for [`Creation::Init`], else the parent.
    pub(crate) of: Name,
    /// Ordinal of the call on the parent.
    pub(crate) ordinal: i64,
    /// The ranks that a shrink leaves out.
    pub(crate) excluded: Name,
}

/// One rank that has called.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) process: ProcessId,
    /// Rank that the call itself tells.
    pub(crate) told_rank: i64,
}

/// A creation that not all ranks have entered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenCreation {
    /// The function; of several the one whose name sorts first.
    pub(crate) api: Name,
    /// Size that the calls themselves tell, 0 where unknown.
    pub(crate) told_nranks: i64,
    pub(crate) callers: Vec<Caller>,
    /// Earliest receipt, on the analyzer's monotonic clock.
    pub(crate) first_receipt: i64,
    pub(crate) reported: bool,
}

/// All creations of a run; `None` for one that is complete.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    map: HashMap<CreationKey, Option<OpenCreation>, foldhash::fast::RandomState>,
}

impl Creations {
    /// The creation of a key, a new one where it was not seen before. `None` when it is complete,
    /// or when `limit` are known.
    pub(crate) fn open(
        &mut self,
        key: CreationKey,
        api: Name,
        limit: usize,
    ) -> Option<&mut OpenCreation> {
        if self.map.len() >= limit && !self.map.contains_key(&key) {
            return None;
        }
        let new = || {
            Some(OpenCreation {
                api,
                told_nranks: 0,
                callers: Vec::new(),
                first_receipt: i64::MAX,
                reported: false,
            })
        };
        self.map.entry(key).or_insert_with(new).as_mut()
    }

    /// Notes that a creation is complete.
    pub(crate) fn complete(&mut self, key: CreationKey) {
        if let Some(creation) = self.map.get_mut(&key) {
            *creation = None;
        }
    }

    /// All creations, in no order.
    pub(crate) fn into_list(self) -> Vec<(CreationKey, Option<OpenCreation>)> {
        self.map.into_iter().collect()
    }

    /// Takes in creations of elsewhere.
    pub(crate) fn put(&mut self, creations: Vec<(CreationKey, Option<OpenCreation>)>) {
        self.map.extend(creations);
    }

    /// The creations that are not complete, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&CreationKey, &mut OpenCreation)> {
        self.map.iter_mut().filter_map(|(key, creation)| Some((key, creation.as_mut()?)))
    }
}

/// The ranks of a list such as `1,5,7`; `None` where it is not whole.
pub(crate) fn listed(text: &str) -> Option<Vec<i64>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let mut ranks = parts.map(|part| part.parse().ok()).collect::<Option<Vec<i64>>>()?;
    ranks.sort_unstable();
    ranks.dedup();
    Some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ranks_is_read_if_it_is_whole() {
        assert_eq!(listed(""), Some(vec![]));
        assert_eq!(listed("3"), Some(vec![3]));
        assert_eq!(listed("7,1, 5,1"), Some(vec![1, 5, 7]));
        assert_eq!(listed("1,2,..."), None);
    }
}
