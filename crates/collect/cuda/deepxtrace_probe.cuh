// Device side of the deepxtrace probes: how a kernel fills the counters that deepxtrace diagnoses.
//
// One file without includes. It compiles with nvcc (C++11 and later) and with NVRTC, for compute
// capability 6.0 and later. Everything is in namespace deepxtrace.
//
// All counters are cumulative signed 64-bit integers in one allocation that deepxtrace owns and
// zeroes once. Kernels only add to them, with device-scope atomics, and nobody resets them. The
// host reads the raw pointers of the parts from the Dispatch bundle (10 pointers) and the Combine
// bundle (5 pointers) and passes them to the kernels:
//
//   Dispatch bundle: notify_dispatch {duration_ns, count}, cached_notify_dispatch {duration_ns,
//                    count}, dispatch_final {cost, samples, tokens}, dispatch_rdma_recv {cost,
//                    samples, tokens}
//   Combine bundle:  cached_notify_combine {duration_ns, count},
//                    combine_logical_recv {cost, samples, tokens}
//
// A Notify part has one element, a Completion part has one a source rank (N of the EP group).
// A null pointer turns a probe off: the functions then do nothing, so one build serves both.
//
// Which kernel fills what (s: source rank, r: this rank, a: node of s):
//
//   notify_dispatch         the barrier before a dispatch that computes its layout
//   cached_notify_dispatch  the barrier before a dispatch with a layout kept from before
//   cached_notify_combine   the barrier before a combine
//   dispatch_final[s]       at the final receiver, by logical source rank s, also where a gateway
//                           forwarded the tokens
//   dispatch_rdma_recv[p]   where tokens of another node arrive, by the gateway proxy
//                           p = a * ranks_per_node + r % ranks_per_node; never p == r
//   combine_logical_recv[s] at the owner of the tokens, by the rank s whose expert computed the
//                           result, also where a gateway on the way merged or forwarded it
//
// Snapshots are copies ordered on the stream that the kernels run on, so a snapshot never holds
// half of a kernel: cost, samples and tokens of one sample need no common lock. A kernel that
// fills counters from another stream must be ordered before the next kernel of that stream.
#ifndef DEEPXTRACE_PROBE_CUH_
#define DEEPXTRACE_PROBE_CUH_

namespace deepxtrace {

// ---------------------------------------------------------------------------------- time

// Nanoseconds of the GPU's global timer: one clock for all multiprocessors of the device. Its
// step differs between GPUs (32 ns to 1 us): single readings are coarse, sums are right.
__device__ __forceinline__ unsigned long long global_timer_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

// Cycles of this multiprocessor. Two readings compare only within one thread.
__device__ __forceinline__ unsigned long long cycles() {
  return static_cast<unsigned long long>(clock64());
}

__device__ __forceinline__ void add(long long* counter, unsigned long long value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(counter), value);
}

// -------------------------------------------------------------------------------- Notify

// The two counters of a Notify probe, one element each.
struct NotifyCounters {
  long long* duration_ns;
  long long* count;
};

// Scratch of one Notify launch: 24 bytes, zeroed before the first launch that uses it. The launch
// leaves it zeroed. Two launches may share it only when the second begins after the first ended
// (launches on one stream do); launches that can overlap need one each.
struct NotifyScratch {
  unsigned long long begin_complement;  // ~(first begin of a block), so that 0 means none yet
  unsigned long long end;               // last end of a block
  unsigned long long blocks;            // blocks that ended
};

// Begins the timer. One thread of every block of the grid calls it, before the block's work.
__device__ __forceinline__ void notify_begin(const NotifyCounters& counters,
                                             NotifyScratch* scratch) {
  if (counters.duration_ns == nullptr) return;
  atomicMax(&scratch->begin_complement, ~global_timer_ns());
}

// Ends the timer. One thread of every block calls it after the block's work: put a
// __syncthreads() before it, so that the block's last thread is counted. The duration reaches from
// the first block that began to the last that ended; the block that ends last adds it.
__device__ __forceinline__ void notify_end(const NotifyCounters& counters,
                                           NotifyScratch* scratch) {
  if (counters.duration_ns == nullptr) return;
  atomicMax(&scratch->end, global_timer_ns());
  // The maximum of this block is visible before the block counts as ended.
  __threadfence();
  const unsigned long long grid =
      static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  if (atomicAdd(&scratch->blocks, 1ULL) + 1 != grid) return;
  // Last block: the maxima of all others are visible after this fence.
  __threadfence();
  const unsigned long long begin = ~atomicExch(&scratch->begin_complement, 0ULL);
  const unsigned long long end = atomicExch(&scratch->end, 0ULL);
  atomicExch(&scratch->blocks, 0ULL);
  add(counters.duration_ns, end > begin ? end - begin : 0);
  add(counters.count, 1);
}

// ---------------------------------------------------------------------------- Completion

// The three counters of a Completion probe, N elements each, by source rank.
struct CompletionCounters {
  long long* cost;
  long long* samples;
  long long* tokens;
};

// When a thread began to wait for a source. One sample is what one receiving thread (or the
// leader of a warp) waited for: the tokens of one source in one channel of one launch.
struct CompletionTimer {
  unsigned long long begin;
};

// Begins a sample: called by the thread that will end it, where it begins to wait.
__device__ __forceinline__ CompletionTimer completion_begin() {
  CompletionTimer timer;
  timer.begin = cycles();
  return timer;
}

// Ends a sample: `tokens` tokens of `source` are complete. Call it for every source that this
// thread waited for, and not for a source without tokens.
__device__ __forceinline__ void completion_end(const CompletionCounters& counters, int source,
                                               const CompletionTimer& timer,
                                               unsigned long long tokens) {
  if (counters.cost == nullptr) return;
  const unsigned long long end = cycles();
  // The clock can go back only when the thread was moved (debugger, preemption): such a sample
  // measures nothing.
  if (end <= timer.begin) return;
  add(counters.cost + source, end - timer.begin);
  add(counters.samples + source, 1);
  add(counters.tokens + source, tokens);
}

// --------------------------------------------------------------------------- low latency

// Adds what this rank waited for `awaited`, cycles, to the wait counters of one phase of the
// low-latency vector (dispatch: elements 0..N, combine: N..2N).
__device__ __forceinline__ void wait_end(long long* wait, int awaited,
                                         const CompletionTimer& timer) {
  if (wait == nullptr) return;
  const unsigned long long end = cycles();
  if (end > timer.begin) add(wait + awaited, end - timer.begin);
}

}  // namespace deepxtrace

#endif  // DEEPXTRACE_PROBE_CUH_
