// Kernels of the GPU tests, compiled by NVRTC when they run. The probe header stands before them.

typedef unsigned long long u64;

extern "C" __global__ void spin(u64 ns) {
  const u64 end = deepxtrace::global_timer_ns() + ns;
  while (deepxtrace::global_timer_ns() < end) __nanosleep(500);
}

extern "C" __global__ void set_all(long long* counters, int n, long long value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    counters[i] = value;
}

// Counter i becomes base + i.
extern "C" __global__ void set_ramp(long long* counters, int n, long long base) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    counters[i] = base + i;
}

// One block: spins, then writes.
extern "C" __global__ void spin_then_set(long long* counters, int n, long long value, u64 ns) {
  const u64 end = deepxtrace::global_timer_ns() + ns;
  while (deepxtrace::global_timer_ns() < end) __nanosleep(500);
  for (int i = threadIdx.x; i < n; i += blockDim.x) counters[i] = value;
}

extern "C" __global__ void add_one(long long* counters, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(reinterpret_cast<u64*>(counters + i), 1ULL);
}

// One block: adds 1 to every counter, `turns` times, each time to all before the next.
extern "C" __global__ void add_many(long long* counters, int n, long long turns) {
  for (long long turn = 0; turn < turns; ++turn) {
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      atomicAdd(reinterpret_cast<u64*>(counters + i), 1ULL);
    __syncthreads();
  }
}

// A fixed amount of arithmetic.
extern "C" __global__ void work(float* out, int turns) {
  float a = threadIdx.x * 0.001f, b = 1.0001f;
  for (int i = 0; i < turns; ++i) a = fmaf(a, b, 0.5f);
  if (a == -1.0f) *out = a;
}

extern "C" __global__ void fault() { asm volatile("trap;"); }

// The probes as a kernel uses them: a Notify of several blocks, and one Completion sample a block.
extern "C" __global__ void probed(deepxtrace::NotifyCounters notify,
                                  deepxtrace::NotifyScratch* scratch,
                                  deepxtrace::CompletionCounters completion, u64 ns) {
  const deepxtrace::CompletionTimer timer = deepxtrace::completion_begin();
  if (threadIdx.x == 0) deepxtrace::notify_begin(notify, scratch);
  // Block b begins its work b * ns later: the grid takes gridDim.x * ns.
  const u64 end = deepxtrace::global_timer_ns() + ns * (blockIdx.x + 1);
  while (deepxtrace::global_timer_ns() < end) {
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    deepxtrace::completion_end(completion, blockIdx.x, timer, 10 + blockIdx.x);
    deepxtrace::notify_end(notify, scratch);
  }
}
