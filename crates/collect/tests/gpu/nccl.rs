//! Gather over NCCL: one rank, and two processes with one GPU each.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use deepxtrace_collect::{
    Collector, CounterMemory, CudaDevice, CudaMemory, Gather, GatherError, Group, JoinError,
    Joined, Membership, NcclComm, NcclGroup, NcclUniqueId, Proposal, SkipReason, Status, Stop,
    Until,
};

use crate::support::{Failure, Gpu, Tested, figure, median_us, membership, require};

/// EP2 would need 24 counters; 150 are those of EP16.
const LEN: usize = 150;
const PATIENCE: Duration = Duration::from_secs(60);

fn proposal(memory: &CudaMemory, setting: &str) -> Proposal {
    Proposal {
        enabled: true,
        vector_len: memory.len(),
        settings: vec![("setting".to_owned(), setting.to_owned())],
        identity: memory.identity(),
    }
}

fn join(group: NcclGroup, proposal: &Proposal) -> Result<Option<Joined>, JoinError> {
    let stop = Stop::new();
    Box::new(group).join(proposal, Until::after(PATIENCE, &stop))
}

fn collector(
    group: NcclGroup,
    memory: &Arc<CudaMemory>,
    timeout: Duration,
) -> Result<Collector, Failure> {
    let joined = join(group, &proposal(memory, "same"))?.ok_or("enabled")?;
    let gather: Box<dyn Gather> = joined.gather;
    let memory = Arc::clone(memory) as Arc<dyn CounterMemory>;
    let whole = std::slice::from_ref(&(0..LEN)).to_vec();
    Ok(Collector::new(memory, gather, &whole, timeout)?)
}

/// What rank `rank` has in step `step`.
fn expected(rank: usize, step: i64) -> Vec<i64> {
    (0..LEN as i64).map(|i| 1_000_000 * rank as i64 + 1000 * step + i).collect()
}

/// Five steps; the root compares every vector with the values written.
fn five_steps(
    gpu: &Gpu,
    memory: &CudaMemory,
    collector: &mut Collector,
    membership: &Membership,
) -> Tested {
    let stop = Stop::new();
    for step in 1..=5 {
        let base = expected(membership.rank(), step)[0];
        let counters = Some((memory.address(), LEN));
        gpu.launch("set_ramp", (8, 256), counters, &[base])?;
        let until = Until::after(PATIENCE, &stop);
        if !membership.is_root() {
            let answered = collector.follow_step(0, until)?.ok_or("no request came")?;
            require!(answered.skipped.is_none(), "skipped: {answered:?}");
            continue;
        }
        let round = collector.lead(0, until)?;
        for rank in 0..membership.size() {
            let vector = round.gathered.vector(rank).ok_or("a vector is missing")?;
            require!(vector == expected(rank, step), "step {step}: rank {rank} differs");
            let identity = round.gather.identity(rank).ok_or("no identity")?;
            require!(identity.uuid.starts_with("GPU-"), "rank {rank} is on {identity:?}");
        }
    }
    Ok(())
}

pub fn one_rank() -> Tested {
    let mut child = Command::new(std::env::current_exe()?).arg("child:nccl-alone").spawn()?;
    let ended = wait(&mut child, Duration::from_secs(90))?;
    require!(ended, "the process failed or did not end");
    Ok(())
}

pub fn child_alone() -> Tested {
    println!("figure: NCCL version: {}", NcclComm::library_version()?);
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let stop = Stop::new();
    let id = NcclUniqueId::new()?;
    let comm = NcclComm::new(&gpu.device, id, 0, 1, Until::after(PATIENCE, &stop))?;
    let membership = Membership::world(0, 1)?;
    let group = NcclGroup::new(comm, &gpu.device, membership.clone())?;
    let mut collector = collector(group, &memory, PATIENCE)?;
    five_steps(&gpu, &memory, &mut collector, &membership)?;
    // SAFETY: null is no communicator, which is what is tested.
    require!(unsafe { NcclComm::borrow(std::ptr::null_mut()) }.is_err(), "null was taken");
    Ok(())
}

pub fn two_processes() -> Tested {
    processes("child:nccl", 2)
}

/// One process a GPU, however many there are.
pub fn every_gpu() -> Tested {
    processes("child:nccl-every", CudaDevice::count()?)
}

/// Starts the processes of a job, each with its rank, the number of ranks and a common folder.
fn processes(role: &str, size: usize) -> Tested {
    let folder = tempfile::tempdir()?;
    let mut children = Vec::new();
    for rank in 0..size {
        let child = Command::new(std::env::current_exe()?)
            .args([role, &rank.to_string(), &size.to_string()])
            .arg(folder.path())
            .stdin(Stdio::null())
            .spawn()?;
        children.push(child);
    }
    let mut fine = true;
    for child in &mut children {
        fine &= wait(child, Duration::from_secs(120))?;
    }
    require!(fine, "a process failed or did not end");
    Ok(())
}

/// Whether the child ended well in time; it is killed when it has not ended.
fn wait(child: &mut Child, patience: Duration) -> Result<bool, Failure> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                println!("process {}: {status}", child.id());
            }
            return Ok(status.success());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}

/// Rank 0 makes an id and leaves it in the folder, where rank 1 finds it.
fn exchange(rank: usize, folder: &Path, name: &str) -> Result<NcclUniqueId, Failure> {
    let path = folder.join(name);
    if rank == 0 {
        let id = NcclUniqueId::new()?;
        let temporary = folder.join(format!("{name}.part"));
        std::fs::write(&temporary, id.bytes())?;
        std::fs::rename(temporary, path)?;
        return Ok(id);
    }
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Ok(bytes) = std::fs::read(&path) {
            return Ok(NcclUniqueId::from_bytes(bytes.as_slice().try_into()?));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("{} did not come", path.display()).into())
}

struct Side {
    rank: usize,
    gpu: Gpu,
    memory: Arc<CudaMemory>,
    comm: NcclComm,
}

impl Side {
    /// The program's side of rank `rank` of `size`: a device and a communicator of all ranks.
    fn new(rank: usize, size: usize, folder: &Path) -> Result<Self, Failure> {
        let gpu = Gpu::new(rank)?;
        let memory = gpu.memory(LEN)?;
        let stop = Stop::new();
        let id = exchange(rank, folder, "first")?;
        let comm = NcclComm::new(&gpu.device, id, rank, size, Until::after(PATIENCE, &stop))?;
        Ok(Self { rank, gpu, memory, comm })
    }

    /// A group over the program's communicator, on the program's stream.
    fn borrowed(&self, root: usize) -> Result<(NcclGroup, Membership), Failure> {
        let membership = membership(self.rank, self.comm.size(), root)?;
        // SAFETY: communicator and stream live until the end of the process, and only one of the
        // groups made here is used at a time.
        let group = unsafe {
            let comm = NcclComm::borrow(self.comm.raw())?;
            NcclGroup::on_stream(comm, &self.gpu.device, self.gpu.raw_stream(), membership.clone())?
        };
        Ok((group, membership))
    }
}

fn place(arguments: &[String]) -> Result<(usize, usize, &Path), Failure> {
    let [rank, size, folder] = arguments else { return Err("rank, size and folder".into()) };
    Ok((rank.parse()?, size.parse()?, Path::new(folder)))
}

/// One of two processes.
pub fn child(arguments: &[String]) -> Tested {
    let (rank, size, folder) = place(arguments)?;
    let mut side = Side::new(rank, size, folder)?;

    for (name, test) in [
        ("roots 0 and 1", roots as fn(&mut Side) -> Tested),
        ("cost of a round", cost),
        ("ranks that differ or do not want it", disagreements),
        ("a split communicator", split),
        ("a skipped rank", skipped),
        ("a captured stream", captured),
    ] {
        test(&mut side).map_err(|error| format!("{name}: {error}"))?;
        println!("rank {rank}: {name}: ok");
    }
    let id = exchange(rank, folder, "second")?;
    absent(&mut side, &id).map_err(|error| format!("a missing rank: {error}"))?;
    println!("rank {rank}: a missing rank: ok");
    Ok(())
}

/// One of as many processes as there are GPUs: every root, then groups of some of the ranks.
pub fn child_every(arguments: &[String]) -> Tested {
    let (rank, size, folder) = place(arguments)?;
    let mut side = Side::new(rank, size, folder)?;
    for root in 0..size {
        let (group, membership) = side.borrowed(root)?;
        let mut collector = collector(group, &side.memory, PATIENCE)?;
        five_steps(&side.gpu, &side.memory, &mut collector, &membership)?;
    }
    println!("rank {rank} of {size}: every root: ok");
    cost(&mut side)?;
    let even = (0..size).step_by(2).collect();
    let odd = if size < 8 {
        (0..size).rev().filter(|rank| rank % 2 == 1).collect()
    } else {
        vec![5, 1, 7]
    };
    let stop = Stop::new();
    for ranks in [even, odd, (0..size).rev().collect::<Vec<_>>()] {
        let key = ranks.iter().position(|&member| member == rank);
        let until = Until::after(PATIENCE, &stop);
        let part = side.comm.split(key.map(|_| 3), key.unwrap_or(0) as u32, until)?;
        require!(part.is_some() == key.is_some(), "the wrong ranks are in {ranks:?}");
        if let Some(part) = part {
            let root = ranks.len() - 1;
            let membership = Membership::subgroup(ranks.clone(), rank, root)?;
            let group = NcclGroup::new(part, &side.gpu.device, membership.clone())?;
            let mut collector = collector(group, &side.memory, PATIENCE)?;
            five_steps(&side.gpu, &side.memory, &mut collector, &membership)?;
        }
        println!("rank {rank} of {size}: group {ranks:?}: ok");
    }
    Ok(())
}

fn roots(side: &mut Side) -> Tested {
    for root in [0, 1, 0] {
        let (group, membership) = side.borrowed(root)?;
        let mut collector = collector(group, &side.memory, PATIENCE)?;
        five_steps(&side.gpu, &side.memory, &mut collector, &membership)?;
    }
    Ok(())
}

fn cost(side: &mut Side) -> Tested {
    let (group, membership) = side.borrowed(0)?;
    let mut collector = collector(group, &side.memory, PATIENCE)?;
    let stop = Stop::new();
    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        let until = Until::after(PATIENCE, &stop);
        if membership.is_root() {
            collector.lead(0, until)?;
        } else {
            collector.follow_step(0, until)?;
        }
        times.push(start.elapsed());
    }
    if membership.is_root() {
        figure(
            &format!(
                "NCCL gather of {} x {LEN} counters, whole synchronous step, median",
                membership.size()
            ),
            median_us(&mut times),
            "us",
        );
    }
    Ok(())
}

fn disagreements(side: &mut Side) -> Tested {
    let (group, _) = side.borrowed(0)?;
    let own = proposal(&side.memory, if side.rank == 0 { "one" } else { "other" });
    match join(group, &own) {
        Err(JoinError::Disagreement(differences)) => {
            let text = differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            require!(text == "setting is one on rank 0, other on rank 1", "{text}");
        }
        other => return Err(format!("{other:?}").into()),
    }
    let (group, _) = side.borrowed(1)?;
    let disabled = Proposal::default();
    require!(join(group, &disabled)?.is_none(), "disabled on all ranks, but joined");
    // A communicator of two ranks is no group of one.
    // SAFETY: as in `borrowed`.
    let comm = unsafe { NcclComm::borrow(side.comm.raw())? };
    let refused = NcclGroup::new(comm, &side.gpu.device, Membership::world(0, 1)?);
    require!(refused.is_err(), "a group of one over a communicator of two");
    Ok(())
}

fn split(side: &mut Side) -> Tested {
    let stop = Stop::new();
    let until = Until::after(PATIENCE, &stop);
    // Both ranks, in the other order.
    let reversed = side.comm.split(Some(0), (1 - side.rank) as u32, until)?.ok_or("a part")?;
    require!(reversed.rank() == 1 - side.rank, "rank {} in the part", reversed.rank());
    let membership = Membership::subgroup(vec![1, 0], side.rank, 0)?;
    let group = NcclGroup::new(reversed, &side.gpu.device, membership.clone())?;
    let mut collector = collector(group, &side.memory, PATIENCE)?;
    five_steps(&side.gpu, &side.memory, &mut collector, &membership)?;
    drop(collector);
    // Rank 1 alone, rank 0 in no part.
    let color = (side.rank == 1).then_some(7);
    let part = side.comm.split(color, 0, until)?;
    require!(part.is_some() == (side.rank == 1), "the wrong rank got a part");
    if let Some(part) = part {
        let membership = Membership::subgroup(vec![1], 1, 0)?;
        let group = NcclGroup::new(part, &side.gpu.device, membership.clone())?;
        let mut collector = self::collector(group, &side.memory, PATIENCE)?;
        five_steps(&side.gpu, &side.memory, &mut collector, &membership)?;
    }
    Ok(())
}

/// Rank 1 has both its buffers in use in one step: the root learns it and gets the next one.
fn skipped(side: &mut Side) -> Tested {
    let (group, membership) = side.borrowed(0)?;
    let mut collector = collector(group, &side.memory, PATIENCE)?;
    let stop = Stop::new();
    let until = Until::after(PATIENCE, &stop);
    if membership.is_root() {
        let round = collector.lead(0, until)?;
        let statuses = round.gathered.statuses();
        let wanted = [Status::Ok, Status::Skipped(SkipReason::Busy)];
        require!(statuses == wanted, "{statuses:?}");
    } else {
        let (a, b) = (side.memory.enqueue_snapshot()?, side.memory.enqueue_snapshot()?);
        let answered = collector.follow_step(0, until)?.ok_or("no request")?;
        require!(answered.skipped == Some(SkipReason::Busy), "{answered:?}");
        for enqueued in [a, b] {
            side.memory.release(crate::support::ticket(enqueued)?);
        }
    }
    five_steps(&side.gpu, &side.memory, &mut collector, &membership)
}

/// While both ranks capture the stream nothing is enqueued on it; the step after works.
fn captured(side: &mut Side) -> Tested {
    let (group, membership) = side.borrowed(0)?;
    let mut collector = collector(group, &side.memory, PATIENCE)?;
    let stop = Stop::new();
    let until = Until::after(PATIENCE, &stop);
    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        side.gpu.stream.begin_capture(mode)?;
        side.gpu.launch("spin", (1, 1), None, &[1000])?;
        let outcome = if membership.is_root() {
            collector.lead(0, until).map(drop)
        } else {
            collector.follow_step(0, until).map(drop)
        };
        require!(outcome == Err(GatherError::Capturing), "{outcome:?}");
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = side.gpu.stream.end_capture(flags)?.ok_or("no graph")?;
        graph.launch()?;
        five_steps(&side.gpu, &side.memory, &mut collector, &membership)?;
    }
    Ok(())
}

/// Rank 1 does not come: with a borrowed communicator and with one of our own.
fn absent(side: &mut Side, id: &NcclUniqueId) -> Tested {
    let short = Duration::from_secs(2);
    let stop = Stop::new();
    let own = NcclComm::new(&side.gpu.device, *id, side.rank, 2, Until::after(PATIENCE, &stop))?;
    let own = NcclGroup::new(own, &side.gpu.device, membership(side.rank, 2, 0)?)?;
    let mut over_own = collector(own, &side.memory, short)?;
    let (group, _) = side.borrowed(0)?;
    let mut over_borrowed = collector(group, &side.memory, short)?;
    if side.rank == 1 {
        std::thread::sleep(Duration::from_secs(8));
        side.comm.abort();
        return Ok(());
    }
    for (what, collector) in [("own", &mut over_own), ("borrowed", &mut over_borrowed)] {
        let start = Instant::now();
        let late = collector.lead(0, Until::after(PATIENCE, &stop)).map(drop);
        let time = start.elapsed();
        require!(matches!(late, Err(GatherError::Transport { .. })), "{what}: {late:?}");
        require!(time < short * 2, "{what}: the error came after {time:?}");
        println!("figure: {what} communicator, other rank missing: {late:?} after {time:?}");
        let again = collector.lead(0, Until::after(PATIENCE, &stop)).map(drop);
        require!(matches!(again, Err(GatherError::OutOfUse(_))), "{what}, again: {again:?}");
    }
    // What the program decides here: it ends its communicator, and goes on.
    side.comm.abort();
    let stream = side.gpu.context.new_stream()?;
    let values = stream.clone_dtoh(&stream.alloc_zeros::<i64>(4)?)?;
    require!(values == [0; 4], "the device is of no more use");
    Ok(())
}
