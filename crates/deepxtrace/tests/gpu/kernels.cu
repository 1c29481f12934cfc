// Kernels of the GPU tests, compiled by NVRTC when they run. The probe header stands before them.

typedef unsigned long long u64;

extern "C" __global__ void add_one(long long* counters, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) deepxtrace::add(counters + i, 1);
}

// A low-latency receiver: block j waits for rank j, `usual_ns`, or `slow_ns` where j is the slow one.
// A rank does not wait for itself.
extern "C" __global__ void receive(long long* wait, int rank, int slow, u64 usual_ns, u64 slow_ns) {
  const int awaited = blockIdx.x;
  if (awaited == rank) return;
  const deepxtrace::CompletionTimer timer = deepxtrace::completion_begin();
  const u64 end = deepxtrace::global_timer_ns() + (awaited == slow ? slow_ns : usual_ns);
  while (deepxtrace::global_timer_ns() < end) __nanosleep(100);
  if (threadIdx.x == 0) deepxtrace::wait_end(wait, awaited, timer);
}
