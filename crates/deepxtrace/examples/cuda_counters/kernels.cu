// Kernels that count as the probes of a MoE communication library do. What they wait for is played:
// they spin for the time that they are told. deepxtrace_probe.cuh stands before this text.

typedef unsigned long long u64;

__device__ void spin(u64 ns) {
  const u64 end = deepxtrace::global_timer_ns() + ns;
  while (deepxtrace::global_timer_ns() < end) __nanosleep(200);
}

// A Notify: the whole grid meets the other ranks, which takes `wait_ns`.
extern "C" __global__ void notify(deepxtrace::NotifyCounters counters,
                                  deepxtrace::NotifyScratch* scratch, u64 wait_ns) {
  if (threadIdx.x == 0) deepxtrace::notify_begin(counters, scratch);
  spin(wait_ns);
  __syncthreads();
  if (threadIdx.x == 0) deepxtrace::notify_end(counters, scratch);
}

// A receiver: block s waits for the tokens of source rank s, longer for those of another node.
extern "C" __global__ void receive(deepxtrace::CompletionCounters last,
                                   deepxtrace::CompletionCounters gateway, int rank,
                                   int ranks_per_node, u64 near_ns, u64 far_ns) {
  const int source = blockIdx.x;
  const bool far = source / ranks_per_node != rank / ranks_per_node;
  const deepxtrace::CompletionTimer timer = deepxtrace::completion_begin();
  spin(far ? far_ns : near_ns);
  if (threadIdx.x != 0) return;
  deepxtrace::completion_end(last, source, timer, 256);
  // Tokens of another node arrive first at the rank with the sender's local index.
  if (far && source % ranks_per_node == rank % ranks_per_node)
    deepxtrace::completion_end(gateway, source, timer, 256);
}
