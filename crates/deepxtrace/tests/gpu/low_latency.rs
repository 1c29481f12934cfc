use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::PushKernelArg;
use deepxtrace::collect::{CudaMemory, LocalGroup};
use deepxtrace::config::Mode;
use deepxtrace::counters::LlPhase;
use deepxtrace::ll::{Arrival, LlFinding};
use deepxtrace::{Counters, Diagnose, LlReport, RawPart, Report, SyncStep};

use crate::Options;
use crate::support::{Failure, Gpu, Tested, blocks, config, require};

const RANKS: usize = 16;
/// As in the recorded matrix of a real job.
const SLOW: usize = 4;
const WINDOWS: usize = 6;
const ROUNDS: usize = 20;

/// What is kept of a window.
struct Seen {
    index: u64,
    /// Columns of the mean rule, with their ratios.
    columns: Vec<(usize, f64)>,
    /// Rows and points of the mean rule.
    others: usize,
    /// Columns of the topology rule.
    topology: Vec<(usize, Arrival)>,
    /// What both rules say of combine.
    combine: usize,
    /// Smallest and largest wait for each other, and what the diagonal holds.
    waits: (i64, i64, i64),
}

impl Seen {
    fn of(report: &LlReport<'_>) -> Option<Self> {
        let (dispatch, combine) = (report.dispatch?, report.combine?);
        let wait = report.window?.wait(LlPhase::Dispatch);
        let off = || wait.indexed_iter().filter(|((a, b), _)| a != b).map(|(_, &cell)| cell);
        let mean = &dispatch.mean_ratio;
        Some(Self {
            index: report.window_index,
            columns: mean.abnormal_cols.iter().map(|axis| (axis.index, axis.ratio)).collect(),
            others: mean.abnormal_rows.len() + mean.abnormal_points.len(),
            topology: dispatch.topology.findings.iter().filter_map(column).collect(),
            combine: usize::from(!combine.mean_ratio.is_empty()),
            waits: (off().min()?, off().max()?, wait.diag().iter().copied().sum()),
        })
    }
}

fn column(finding: &LlFinding) -> Option<(usize, Arrival)> {
    match *finding {
        LlFinding::Column { rank, arrival, .. } => Some((rank, arrival)),
        _ => None,
    }
}

/// Sixteen ranks, a thread and a stream each. All others wait 200 us for rank 4 and 20 us for each
/// other, and rank 4, which comes last, 1 us for everyone; in combine everyone waits 20 us for
/// everyone.
///
/// By hand, in units of 20 us: column 4 has the mean 15 * 10 / 16 = 9.4, the others
/// (14 + 0.05) / 16 = 0.88; the mean of all is 1.41, so column 4 has a ratio of 6.7 (threshold 3)
/// and the others 0.6; rank 4's own row is 0.03 of the others': late.
pub fn slow_rank(options: &Options, mode: Mode) -> Tested {
    let device = options.device;
    let folder = tempfile::tempdir()?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let together = Barrier::new(RANKS);
    std::thread::scope(|scope| {
        let (folder, together) = (folder.path(), &together);
        let ranks: Vec<_> = LocalGroup::new(RANKS)?
            .into_iter()
            .enumerate()
            .map(|(rank, group)| {
                let seen = Arc::clone(&seen);
                scope.spawn(move || -> Tested {
                    let gpu = Gpu::new(device);
                    // A rank that failed must not let the others wait.
                    together.wait();
                    let gpu = gpu?;
                    let config = config(mode, Duration::from_millis(200), folder);
                    // SAFETY: the stream is dropped after `diagnose`.
                    let memory = unsafe { CudaMemory::on_stream(&gpu.device, gpu.raw_stream()) };
                    let diagnose = Diagnose::builder(group, config)
                        .counters(Counters::LowLatency)
                        .memory(memory)
                        .join_timeout(Duration::from_secs(30))
                        .on_report(move |report| {
                            if let Report::LowLatency(report) = report
                                && let Some(window) = Seen::of(&report)
                                && let Ok(mut seen) = seen.lock()
                            {
                                seen.push(window);
                            }
                        })
                        .build()?
                        .ok_or("collection is enabled")?;
                    work(mode, rank, &gpu, diagnose)
                })
            })
            .collect();
        for rank in ranks {
            rank.join().map_err(|_| "a rank panicked")??;
        }
        Ok::<(), Failure>(())
    })?;
    let seen = seen.lock().map_err(|_| "a callback panicked")?;
    require!(seen.len() >= 3, "{} windows", seen.len());
    if options.any_diagnosis {
        println!("figure: {} low-latency windows, not judged", seen.len());
        return Ok(());
    }
    // The boundary and the end of asynchronous windows stand anywhere: ranks are not in step there.
    let whole = if mode == Mode::Synchronous { &seen[..] } else { &seen[1..seen.len() - 1] };
    for window in whole {
        let Seen { index, columns, others, topology, combine, waits } = window;
        let expected = matches!(columns.as_slice(), [(SLOW, ratio)] if (5.0..8.0).contains(ratio));
        require!(expected, "window {index}: columns {columns:?}");
        require!(*others == 0, "window {index}: {others} rows and points");
        require!(topology == &[(SLOW, Arrival::Late)], "window {index}: {topology:?}");
        require!(*combine == 0, "window {index}: combine is not healthy");
        let (least, most, own) = *waits;
        require!(least > 0 && most > 5 * least && own == 0, "window {index}: waits {waits:?}");
    }
    let ratios: Vec<_> = whole.iter().flat_map(|window| &window.columns).collect();
    println!("figure: low-latency columns found in {} windows: {ratios:.2?}", whole.len());
    Ok(())
}

/// Rounds with a window after each 20, or for some windows' time.
fn work(mode: Mode, rank: usize, gpu: &Gpu, mut diagnose: Diagnose) -> Tested {
    let [dispatch, combine] = diagnose.ll_bundle().ok_or("a low-latency bundle")?.raw();
    require!(dispatch.len == RANKS && combine.len == RANKS, "{dispatch:?} {combine:?}");
    let (slow_ns, usual_ns) = if rank == SLOW { (1_000, 1_000) } else { (200_000, 20_000) };
    let rounds = || -> Tested {
        for _ in 0..ROUNDS {
            if rank == SLOW {
                // What makes it late is not counted: the probe is off.
                receive(gpu, RawPart { address: 0, len: 0 }, rank, RANKS, (200_000, 0))?;
            }
            receive(gpu, dispatch, rank, SLOW, (usual_ns, slow_ns))?;
            receive(gpu, combine, rank, RANKS, (20_000, 0))?;
        }
        Ok(())
    };
    rounds()?;
    gpu.stream.synchronize()?;
    diagnose.start()?;
    let begin = Instant::now();
    if mode == Mode::Synchronous {
        // The boundary, then the windows.
        for _ in 0..=WINDOWS {
            rounds()?;
            let step = diagnose.diagnose_ll_sync()?;
            require!(step == SyncStep::Collected, "{step:?}");
        }
    }
    while mode == Mode::Asynchronous && begin.elapsed() < Duration::from_millis(1600) {
        rounds()?;
        gpu.stream.synchronize()?;
    }
    gpu.stream.synchronize()?;
    drop(diagnose);
    Ok(())
}

fn receive(
    gpu: &Gpu,
    wait: RawPart,
    rank: usize,
    slow: usize,
    (usual, slow_ns): (u64, u64),
) -> Tested {
    let (rank, slow) = (rank as i32, slow as i32);
    let mut launch = gpu.stream.launch_builder(&gpu.receive);
    launch.arg(&wait.address).arg(&rank).arg(&slow).arg(&usual).arg(&slow_ns);
    // SAFETY: the arguments are those of the kernel, one block a rank; the counters are alive.
    unsafe { launch.launch(blocks(RANKS as u32))? };
    Ok(())
}
