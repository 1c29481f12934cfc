//! The probes and counters by name.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! named {
    ($type:ident { $($variant:ident => $name:literal),* $(,)? }) => {
        impl $type {
            /// The name in logs, JSON and artifacts.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// A probe around a Notify kernel, in which all ranks of the group meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyProbe {
    /// Notify before a dispatch that computes its layout.
    NotifyDispatch,
    /// Notify before a dispatch with a cached layout.
    CachedNotifyDispatch,
    /// Notify before a combine.
    CachedNotifyCombine,
}

/// A probe on the completion of received data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionProbe {
    /// Dispatch, at the final receiver, by logical source rank.
    DispatchFinal,
    /// Dispatch, where inter-node data arrives, by source gateway proxy rank.
    DispatchRdmaRecv,
    /// Combine, by reconstructed logical source rank.
    CombineLogicalRecv,
}

/// Any probe of the Normal mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// See [`NotifyProbe::NotifyDispatch`].
    NotifyDispatch,
    /// See [`NotifyProbe::CachedNotifyDispatch`].
    CachedNotifyDispatch,
    /// See [`NotifyProbe::CachedNotifyCombine`].
    CachedNotifyCombine,
    /// See [`CompletionProbe::DispatchFinal`].
    DispatchFinal,
    /// See [`CompletionProbe::DispatchRdmaRecv`].
    DispatchRdmaRecv,
    /// See [`CompletionProbe::CombineLogicalRecv`].
    CombineLogicalRecv,
}

/// One counter of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Sum of the durations of a Notify kernel, ns.
    DurationNs,
    /// Launches of a Notify kernel.
    Count,
    /// Sum of completion costs, cycles of the receiving GPU.
    Cost,
    /// Completion samples.
    SampleCount,
    /// Tokens in these samples.
    TokenCount,
}

named!(NotifyProbe {
    NotifyDispatch => "notify_dispatch",
    CachedNotifyDispatch => "cached_notify_dispatch",
    CachedNotifyCombine => "cached_notify_combine",
});
named!(CompletionProbe {
    DispatchFinal => "dispatch_final",
    DispatchRdmaRecv => "dispatch_rdma_recv",
    CombineLogicalRecv => "combine_logical_recv",
});
named!(Counter {
    DurationNs => "duration_ns",
    Count => "count",
    Cost => "cost",
    SampleCount => "sample_count",
    TokenCount => "token_count",
});

impl NotifyProbe {
    /// All, in the order of the vector.
    pub const ALL: [Self; 3] =
        [Self::NotifyDispatch, Self::CachedNotifyDispatch, Self::CachedNotifyCombine];
}

impl CompletionProbe {
    /// All, in the order of the vector.
    pub const ALL: [Self; 3] =
        [Self::DispatchFinal, Self::DispatchRdmaRecv, Self::CombineLogicalRecv];
}

impl Probe {
    /// All, in the order of the vector.
    pub const ALL: [Self; 6] = [
        Self::NotifyDispatch,
        Self::CachedNotifyDispatch,
        Self::CachedNotifyCombine,
        Self::DispatchFinal,
        Self::DispatchRdmaRecv,
        Self::CombineLogicalRecv,
    ];

    /// The name in logs, JSON and artifacts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.notify(), self.completion()) {
            (Some(probe), _) => probe.name(),
            (None, Some(probe)) => probe.name(),
            (None, None) => "",
        }
    }

    /// This probe as a Notify probe, if it is one.
    #[must_use]
    pub fn notify(self) -> Option<NotifyProbe> {
        NotifyProbe::ALL.into_iter().find(|&probe| Self::from(probe) == self)
    }

    /// This probe as a Completion probe, if it is one.
    #[must_use]
    pub fn completion(self) -> Option<CompletionProbe> {
        CompletionProbe::ALL.into_iter().find(|&probe| Self::from(probe) == self)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<NotifyProbe> for Probe {
    fn from(probe: NotifyProbe) -> Self {
        match probe {
            NotifyProbe::NotifyDispatch => Self::NotifyDispatch,
            NotifyProbe::CachedNotifyDispatch => Self::CachedNotifyDispatch,
            NotifyProbe::CachedNotifyCombine => Self::CachedNotifyCombine,
        }
    }
}

impl From<CompletionProbe> for Probe {
    fn from(probe: CompletionProbe) -> Self {
        match probe {
            CompletionProbe::DispatchFinal => Self::DispatchFinal,
            CompletionProbe::DispatchRdmaRecv => Self::DispatchRdmaRecv,
            CompletionProbe::CombineLogicalRecv => Self::CombineLogicalRecv,
        }
    }
}

/// One part of a bundle that is handed to a kernel: one counter of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BundlePart {
    /// The probe.
    pub probe: Probe,
    /// Its counter. A Notify counter has one element, a Completion counter one a source rank.
    pub counter: Counter,
}

const fn part(probe: Probe, counter: Counter) -> BundlePart {
    BundlePart { probe, counter }
}

/// What a dispatch kernel fills, in the order of its arguments.
pub const DISPATCH_BUNDLE: [BundlePart; 10] = [
    part(Probe::NotifyDispatch, Counter::DurationNs),
    part(Probe::NotifyDispatch, Counter::Count),
    part(Probe::CachedNotifyDispatch, Counter::DurationNs),
    part(Probe::CachedNotifyDispatch, Counter::Count),
    part(Probe::DispatchFinal, Counter::Cost),
    part(Probe::DispatchFinal, Counter::SampleCount),
    part(Probe::DispatchFinal, Counter::TokenCount),
    part(Probe::DispatchRdmaRecv, Counter::Cost),
    part(Probe::DispatchRdmaRecv, Counter::SampleCount),
    part(Probe::DispatchRdmaRecv, Counter::TokenCount),
];

/// What a combine kernel fills, in the order of its arguments.
pub const COMBINE_BUNDLE: [BundlePart; 5] = [
    part(Probe::CachedNotifyCombine, Counter::DurationNs),
    part(Probe::CachedNotifyCombine, Counter::Count),
    part(Probe::CombineLogicalRecv, Counter::Cost),
    part(Probe::CombineLogicalRecv, Counter::SampleCount),
    part(Probe::CombineLogicalRecv, Counter::TokenCount),
];
