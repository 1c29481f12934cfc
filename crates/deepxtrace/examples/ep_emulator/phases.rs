//! The phases: what is done to the ranks and paths, and what deepxtrace should say.

use crate::options::Options;

/// One phase.
#[derive(Debug, Clone)]
pub struct Phase {
    pub name: &'static str,
    /// What is done, in words.
    pub what: String,
    pub windows: usize,
    /// Additional computation of one rank before dispatch and before combine, microseconds.
    pub late_dispatch_us: u64,
    pub late_combine_us: u64,
    /// Competing peer copies from node 0 to 1 and from 1 to 0.
    pub copies: [usize; 2],
    /// Repeated stores in dispatch and combine.
    pub extra: Extra,
    pub strong_skew: bool,
    pub expected: Expected,
}

/// Whose stores over the link are repeated, and how often.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extra {
    /// Bit r: rank r.
    pub ranks: u32,
    pub dispatch: i32,
    pub combine: i32,
    /// The repetitions grow by one every so many windows, from 0; 0: they are there at once.
    pub grows_every: usize,
}

impl Extra {
    /// The repetitions of `rank` in window `window` of the phase.
    pub fn of(self, rank: usize, window: usize) -> (i32, i32) {
        if self.ranks >> rank & 1 == 0 {
            return (0, 0);
        }
        match self.grows_every {
            0 => (self.dispatch, self.combine),
            every => {
                let grown = (window / every) as i32;
                (self.dispatch.min(grown), self.combine.min(grown))
            }
        }
    }
}

/// The incidents of every window of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// None.
    Nothing,
    /// `pre_stage_arrival_skew` for these probes and this rank, and nothing else.
    Late(&'static [&'static str], usize),
    /// `global_data_path_slowdown` alone.
    Global,
    /// `global_data_path_slowdown` alone in the last window.
    GlobalAtLast,
    /// `localized_data_path_slowdown` alone, with these owners.
    Owners(&'static [usize]),
    /// `localized_data_path_slowdown` alone, with this rail among its rails.
    Rail([usize; 3]),
    /// `localized_data_path_slowdown` alone.
    Localized,
    /// `unclassified` alone.
    Unclassified,
}

/// The five phases, and those beyond them where they are wanted.
pub fn phases(options: &Options) -> Vec<Phase> {
    let all = 2_u32.pow(options.ranks() as u32) - 1;
    let per_node = options.ranks_per_node;
    let pair = 0b11 | 0b11 << per_node;
    let quiet = |name, windows| Phase {
        name,
        what: "nothing added".to_owned(),
        windows,
        late_dispatch_us: 0,
        late_combine_us: 0,
        copies: [0, 0],
        extra: Extra::default(),
        strong_skew: false,
        expected: Expected::Nothing,
    };
    let (rank, us, n) = (options.late_rank, options.late_us, options.windows);
    let extra = |ranks, dispatch, combine| Extra { ranks, dispatch, combine, grows_every: 0 };
    let (dispatch, combine) = (options.extra_dispatch, options.extra_combine);
    let mut phases = vec![
        quiet("baseline", 2 * n),
        Phase {
            what: format!("rank {rank} computes {us} us longer before every dispatch"),
            late_dispatch_us: us,
            expected: Expected::Late(&["notify_dispatch", "cached_notify_dispatch"], rank),
            ..quiet("late_before_dispatch", n)
        },
        Phase {
            what: format!("rank {rank} computes {us} us longer before every combine"),
            late_combine_us: us,
            expected: Expected::Late(&["cached_notify_combine"], rank),
            ..quiet("late_before_combine", n)
        },
        Phase {
            what: format!("{} competing peer copies in each direction", options.pressure),
            copies: [options.pressure; 2],
            expected: Expected::Global,
            ..quiet("pressure_all_paths", n)
        },
        Phase {
            what: format!(
                "local indices 0 and 1: every chunk stored over the link is stored {dispatch} \
                 (dispatch) or {combine} (combine) times more"
            ),
            extra: extra(pair, dispatch, combine),
            expected: if per_node == 8 {
                Expected::Owners(&[0, 1, 8, 9])
            } else {
                Expected::Localized
            },
            ..quiet("pressure_local_0_1", n)
        },
        quiet("baseline_again", 2 * n),
    ];
    if options.beyond {
        phases.extend([
            Phase {
                what: format!("{} competing peer copies from node 0 to node 1", options.pressure),
                copies: [options.pressure, 0],
                expected: Expected::Localized,
                ..quiet("one_direction", n)
            },
            Phase {
                what: "rank 0: every chunk it stores over the link is stored more often".to_owned(),
                extra: extra(1, dispatch, combine),
                expected: Expected::Rail([0, 0, 1]),
                ..quiet("send_side_of_rank_0", n)
            },
            Phase {
                what: format!("experts chosen with skew {}", options.strong_skew),
                strong_skew: true,
                ..quiet("strong_skew", n)
            },
            Phase {
                what: format!("local indices 0 and 1: {combine} more stores, in combine only"),
                extra: extra(pair, 0, combine),
                expected: Expected::Unclassified,
                ..quiet("combine_only", n)
            },
            Phase {
                what: "all ranks: one more store of every chunk over the link every 3 windows"
                    .to_owned(),
                extra: Extra { ranks: all, dispatch: 8, combine: 8, grows_every: 3 },
                expected: Expected::GlobalAtLast,
                // Short enough that the level does not become the new normal.
                ..quiet("slow_ramp", n + n / 2)
            },
        ]);
    }
    if !options.phases.is_empty() {
        phases.retain(|phase| {
            phase.name == "baseline" || options.phases.iter().any(|name| name == phase.name)
        });
    }
    phases
}
