//! What kernels are given to count in.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use deepxtrace_collect::CounterMemory;
use deepxtrace_counters::{BundlePart, COMBINE_BUNDLE, DISPATCH_BUNDLE, Layout, LlLayout, LlPhase};

/// One part of a bundle: a run of counters in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawPart {
    /// Address of its first counter, on the device.
    pub address: u64,
    /// Counters, 8 bytes each.
    pub len: usize,
}

/// The parts of a bundle, with the memory that they lie in.
#[derive(Clone)]
struct Bundle<const PARTS: usize> {
    memory: Arc<dyn CounterMemory>,
    ranges: [Range<usize>; PARTS],
}

impl<const PARTS: usize> Bundle<PARTS> {
    fn raw(&self) -> [RawPart; PARTS] {
        let base = self.memory.address();
        self.ranges.each_ref().map(|range| RawPart {
            address: base.saturating_add((range.start as u64).saturating_mul(8)),
            len: range.len(),
        })
    }
}

/// Where the parts of a Normal-mode bundle lie. All parts of the two bundles exist.
fn normal<const PARTS: usize>(
    memory: &Arc<dyn CounterMemory>,
    layout: Layout,
    parts: [BundlePart; PARTS],
) -> Bundle<PARTS> {
    let ranges = parts.map(|part| layout.part(part).unwrap_or_default());
    Bundle { memory: Arc::clone(memory), ranges }
}

macro_rules! bundle {
    ($(#[$doc:meta])* $name:ident, $parts:literal) => {
        $(#[$doc])*
        ///
        /// An opaque value to pass on: it keeps the counters alive, whatever becomes of the
        /// [`Diagnose`](crate::Diagnose) that it came from. For foreign interfaces it tells device
        /// addresses and lengths.
        #[derive(Clone)]
        pub struct $name(Bundle<$parts>);

        impl $name {
            /// Address and length of every part, in this order.
            #[must_use]
            pub fn raw(&self) -> [RawPart; $parts] {
                self.0.raw()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.raw()).finish()
            }
        }
    };
}

bundle! {
    /// What dispatch kernels count in, ten parts: `notify_dispatch` duration (ns) and count,
    /// `cached_notify_dispatch` duration and count, `dispatch_final` cost (cycles), samples and
    /// tokens, `dispatch_rdma_recv` cost, samples and tokens.
    DispatchBundle, 10
}

bundle! {
    /// What combine kernels count in, five parts: `cached_notify_combine` duration (ns) and count,
    /// `combine_logical_recv` cost (cycles), samples and tokens.
    CombineBundle, 5
}

bundle! {
    /// What low-latency kernels count in, two parts: dispatch waits and combine waits (cycles), by
    /// awaited rank.
    LlBundle, 2
}

impl DispatchBundle {
    pub(super) fn new(memory: &Arc<dyn CounterMemory>, layout: Layout) -> Self {
        Self(normal(memory, layout, DISPATCH_BUNDLE))
    }
}

impl CombineBundle {
    pub(super) fn new(memory: &Arc<dyn CounterMemory>, layout: Layout) -> Self {
        Self(normal(memory, layout, COMBINE_BUNDLE))
    }
}

impl LlBundle {
    /// `first`: where the low-latency part of the allocation begins.
    pub(super) fn new(memory: &Arc<dyn CounterMemory>, layout: LlLayout, first: usize) -> Self {
        let ranges = LlPhase::ALL.map(|phase| {
            let range = layout.wait(phase);
            first + range.start..first + range.end
        });
        Self(Bundle { memory: Arc::clone(memory), ranges })
    }
}
