//! The five experiments whose diagnoses are known.

use crate::fault::{Fault, Slowdown};

/// One experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// What is done to the job, for people.
    pub what: &'static str,
    /// What is done to the job.
    pub faults: Vec<Fault>,
    /// The incidents of every window: the kind, then its probe and ranks or its token owners, as
    /// in `pre_stage_arrival_skew notify_dispatch 9` and `localized_data_path_slowdown owners 0 1`.
    pub expected: &'static [&'static str],
}

/// The five phases of a group of 16 ranks on two nodes of eight: nothing, rank 9 late before
/// dispatch, rank 9 late before combine, all network adapters under pressure, and one of them,
/// which ranks 0, 1, 8 and 9 use.
///
/// Lateness and factors are chosen so that the ratios are those that were measured: 0.036 and 0.006
/// for the late rank; 1.371, 1.447 and 1.514 for the three levels under pressure.
#[must_use]
pub fn five_phases() -> [Phase; 5] {
    [
        Phase { name: "baseline", what: "nothing added", faults: vec![], expected: &[] },
        Phase {
            name: "late_before_dispatch",
            what: "rank 9 computes 1.4 ms longer before dispatch",
            faults: vec![Fault::LateBeforeDispatch { rank: 9, ns: 1_400_000 }],
            expected: &[
                "pre_stage_arrival_skew notify_dispatch 9",
                "pre_stage_arrival_skew cached_notify_dispatch 9",
            ],
        },
        Phase {
            name: "late_before_combine",
            what: "rank 9 computes 1.4 ms longer before combine",
            faults: vec![Fault::LateBeforeCombine { rank: 9, ns: 1_400_000 }],
            expected: &["pre_stage_arrival_skew cached_notify_combine 9"],
        },
        Phase {
            name: "pressure_all_hcas",
            what: "other traffic on all network adapters",
            faults: vec![Fault::Pressure(Slowdown {
                dispatch: 1.534,
                gateway: 1.447,
                combine: 1.685,
            })],
            expected: &["global_data_path_slowdown"],
        },
        Phase {
            name: "pressure_one_hca",
            what: "other traffic on the network adapter of ranks 0, 1, 8, 9",
            faults: vec![Fault::HcaPressure {
                owners: vec![0, 1, 8, 9],
                slowdown: Slowdown { dispatch: 1.64, gateway: 1.9, combine: 2.04 },
            }],
            expected: &["localized_data_path_slowdown owners 0 1 8 9"],
        },
    ]
}
