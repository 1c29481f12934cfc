//! Where each counter stands in the local vector of one rank.

use std::ops::Range;

use crate::error::LayoutError;
use crate::probe::{BundlePart, CompletionProbe, Counter, NotifyProbe, Probe};
use crate::topology::{MAX_EP_SIZE, Topology};

/// Counters of the three Notify probes, a duration and a count each.
const NOTIFY_LEN: usize = 6;
/// Counters a source rank in all Completion groups: three probes of three.
const COMPLETION_LEN_PER_RANK: usize = 9;

/// The layout of the Normal-mode vector of one rank, for a given EP size `N`.
///
/// | offset | length | content |
/// |---|---|---|
/// | 0 | 2 | `notify_dispatch`: duration (ns), count |
/// | 2 | 2 | `cached_notify_dispatch`: duration (ns), count |
/// | 4 | 2 | `cached_notify_combine`: duration (ns), count |
/// | 6 | 3N | `dispatch_final`: cost (cycles), samples, tokens, each by logical source rank |
/// | 6+3N | 3N | `dispatch_rdma_recv`: the same, by source gateway proxy rank |
/// | 6+6N | 3N | `combine_logical_recv`: the same, by reconstructed logical source rank |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    ep_size: usize,
}

impl Layout {
    /// The layout for `ep_size` ranks.
    ///
    /// # Errors
    ///
    /// `ep_size` is 0 or above [`MAX_EP_SIZE`].
    pub fn new(ep_size: usize) -> Result<Self, LayoutError> {
        if ep_size == 0 || ep_size > MAX_EP_SIZE {
            return Err(LayoutError::EpSize(ep_size));
        }
        Ok(Self { ep_size })
    }

    /// The layout for the ranks of `topology`.
    #[must_use]
    pub fn of(topology: Topology) -> Self {
        Self { ep_size: topology.ep_size() }
    }

    /// The layout whose vector has `length` elements, if there is one.
    #[must_use]
    pub fn from_vector_len(length: usize) -> Option<Self> {
        let ep_size = length.checked_sub(NOTIFY_LEN)? / COMPLETION_LEN_PER_RANK;
        let layout = Self::new(ep_size).ok()?;
        (layout.vector_len() == length).then_some(layout)
    }

    /// Number of ranks, `N`.
    #[must_use]
    pub fn ep_size(self) -> usize {
        self.ep_size
    }

    /// Elements of the whole vector, `6 + 9N`.
    #[must_use]
    pub fn vector_len(self) -> usize {
        NOTIFY_LEN + COMPLETION_LEN_PER_RANK * self.ep_size
    }

    /// Offset of the summed duration of a Notify probe, ns.
    #[must_use]
    pub fn duration_ns(self, probe: NotifyProbe) -> usize {
        2 * match probe {
            NotifyProbe::NotifyDispatch => 0,
            NotifyProbe::CachedNotifyDispatch => 1,
            NotifyProbe::CachedNotifyCombine => 2,
        }
    }

    /// Offset of the number of launches of a Notify probe.
    #[must_use]
    pub fn count(self, probe: NotifyProbe) -> usize {
        self.duration_ns(probe) + 1
    }

    /// Place of the summed costs of a Completion probe, cycles, by source rank.
    #[must_use]
    pub fn cost(self, probe: CompletionProbe) -> Range<usize> {
        self.completion(probe, 0)
    }

    /// Place of the sample counts of a Completion probe, by source rank.
    #[must_use]
    pub fn samples(self, probe: CompletionProbe) -> Range<usize> {
        self.completion(probe, 1)
    }

    /// Place of the token counts of a Completion probe, by source rank.
    #[must_use]
    pub fn tokens(self, probe: CompletionProbe) -> Range<usize> {
        self.completion(probe, 2)
    }

    /// Place of one part of a bundle; `None` for a counter that the probe does not have.
    #[must_use]
    pub fn part(self, part: BundlePart) -> Option<Range<usize>> {
        let one = |offset| offset..offset + 1;
        match (part.probe.notify(), part.probe.completion(), part.counter) {
            (Some(probe), _, Counter::DurationNs) => Some(one(self.duration_ns(probe))),
            (Some(probe), _, Counter::Count) => Some(one(self.count(probe))),
            (_, Some(probe), Counter::Cost) => Some(self.cost(probe)),
            (_, Some(probe), Counter::SampleCount) => Some(self.samples(probe)),
            (_, Some(probe), Counter::TokenCount) => Some(self.tokens(probe)),
            _ => None,
        }
    }

    /// What stands at `offset`: probe, counter and, for Completion, the source rank. `None` past
    /// the end.
    #[must_use]
    pub fn describe(self, offset: usize) -> Option<(Probe, Counter, Option<usize>)> {
        if let Some(&probe) = NotifyProbe::ALL.get(offset / 2) {
            let counter =
                if offset.is_multiple_of(2) { Counter::DurationNs } else { Counter::Count };
            return Some((probe.into(), counter, None));
        }
        let offset = offset - NOTIFY_LEN;
        let column = offset / self.ep_size;
        let probe = *CompletionProbe::ALL.get(column / 3)?;
        let counter = [Counter::Cost, Counter::SampleCount, Counter::TokenCount][column % 3];
        Some((probe.into(), counter, Some(offset % self.ep_size)))
    }

    fn completion(self, probe: CompletionProbe, column: usize) -> Range<usize> {
        let group = match probe {
            CompletionProbe::DispatchFinal => 0,
            CompletionProbe::DispatchRdmaRecv => 1,
            CompletionProbe::CombineLogicalRecv => 2,
        };
        let start = NOTIFY_LEN + (3 * group + column) * self.ep_size;
        start..start + self.ep_size
    }
}

/// The two counters of a Notify probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotifyPair {
    /// Sum of the durations, ns.
    pub duration_ns: i64,
    /// Launches.
    pub count: i64,
}

/// The three counters of a Completion probe, each by source rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionGroup<'a> {
    /// Sum of the costs, cycles of the receiving GPU.
    pub cost: &'a [i64],
    /// Samples.
    pub samples: &'a [i64],
    /// Tokens in these samples.
    pub tokens: &'a [i64],
}

/// A typed view over the cumulative vector of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalVector<'a> {
    layout: Layout,
    values: &'a [i64],
}

impl<'a> LocalVector<'a> {
    /// Views `values` in the given layout.
    ///
    /// # Errors
    ///
    /// The length is not [`Layout::vector_len`].
    pub fn new(layout: Layout, values: &'a [i64]) -> Result<Self, LayoutError> {
        if values.len() != layout.vector_len() {
            return Err(LayoutError::VectorLen {
                length: values.len(),
                expected: layout.vector_len(),
                ep_size: layout.ep_size(),
            });
        }
        Ok(Self { layout, values })
    }

    /// The layout.
    #[must_use]
    pub fn layout(self) -> Layout {
        self.layout
    }

    /// The whole vector.
    #[must_use]
    pub fn as_slice(self) -> &'a [i64] {
        self.values
    }

    /// The counters of a Notify probe.
    #[must_use]
    pub fn notify(self, probe: NotifyProbe) -> NotifyPair {
        NotifyPair {
            duration_ns: self.values[self.layout.duration_ns(probe)],
            count: self.values[self.layout.count(probe)],
        }
    }

    /// The counters of a Completion probe, by source rank.
    #[must_use]
    pub fn completion(self, probe: CompletionProbe) -> CompletionGroup<'a> {
        CompletionGroup {
            cost: &self.values[self.layout.cost(probe)],
            samples: &self.values[self.layout.samples(probe)],
            tokens: &self.values[self.layout.tokens(probe)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{COMBINE_BUNDLE, DISPATCH_BUNDLE};

    /// Offsets written out by hand from the table of the specification for N = 16.
    #[test]
    fn offsets_of_ep16_are_those_of_the_specification() {
        let layout = Layout::new(16).unwrap();
        assert_eq!(layout.vector_len(), 150);
        assert_eq!(layout.duration_ns(NotifyProbe::NotifyDispatch), 0);
        assert_eq!(layout.count(NotifyProbe::NotifyDispatch), 1);
        assert_eq!(layout.duration_ns(NotifyProbe::CachedNotifyDispatch), 2);
        assert_eq!(layout.count(NotifyProbe::CachedNotifyCombine), 5);
        assert_eq!(layout.cost(CompletionProbe::DispatchFinal), 6..22);
        assert_eq!(layout.samples(CompletionProbe::DispatchFinal), 22..38);
        assert_eq!(layout.tokens(CompletionProbe::DispatchFinal), 38..54);
        assert_eq!(layout.cost(CompletionProbe::DispatchRdmaRecv), 54..70);
        assert_eq!(layout.tokens(CompletionProbe::CombineLogicalRecv), 134..150);
    }

    #[test]
    fn the_bundles_together_cover_the_vector_once() {
        for ep_size in [1, 2, 7, 4096] {
            let layout = Layout::new(ep_size).unwrap();
            let mut seen = vec![0_u8; layout.vector_len()];
            for part in DISPATCH_BUNDLE.into_iter().chain(COMBINE_BUNDLE) {
                let range = layout.part(part).unwrap();
                let expected = if part.probe.notify().is_some() { 1 } else { ep_size };
                assert_eq!(range.len(), expected);
                for (i, offset) in range.enumerate() {
                    seen[offset] += 1;
                    let source = part.probe.completion().map(|_| i);
                    assert_eq!(layout.describe(offset), Some((part.probe, part.counter, source)));
                }
            }
            assert!(seen.iter().all(|&n| n == 1));
            assert_eq!(layout.describe(layout.vector_len()), None);
        }
        let wrong = BundlePart { probe: Probe::NotifyDispatch, counter: Counter::Cost };
        assert_eq!(Layout::new(4).unwrap().part(wrong), None);
    }

    #[test]
    fn a_vector_length_names_its_layout_or_none() {
        assert_eq!(Layout::from_vector_len(150).map(Layout::ep_size), Some(16));
        for length in [0, 5, 6, 14, 16, 151, usize::MAX] {
            assert_eq!(Layout::from_vector_len(length), None, "length {length}");
        }
        assert_eq!(Layout::from_vector_len(6 + 9 * 4096).map(Layout::ep_size), Some(4096));
        assert_eq!(Layout::from_vector_len(6 + 9 * 4097), None);
    }

    #[test]
    fn a_view_reads_by_name_and_refuses_another_length() {
        let layout = Layout::new(2).unwrap();
        let values: Vec<i64> = (0..24).collect();
        let view = LocalVector::new(layout, &values).unwrap();
        assert_eq!(
            view.notify(NotifyProbe::CachedNotifyDispatch),
            NotifyPair { duration_ns: 2, count: 3 }
        );
        let group = view.completion(CompletionProbe::DispatchRdmaRecv);
        assert_eq!(
            (group.cost, group.samples, group.tokens),
            (&[12, 13][..], &[14, 15][..], &[16, 17][..])
        );
        let error = LocalVector::new(layout, &values[1..]).unwrap_err();
        assert_eq!(error.to_string(), "vector has 23 elements, EP size 2 needs 24");
    }
}
