// Kernels of the EP emulator: one dispatch and combine round of one logical rank. The text of
// deepxtrace_probe.cuh is put before this file when it is compiled (NVRTC), so there are no includes.
//
// A node is one GPU or several. Memory of a rank is one slab with the same offsets on every rank; slabs
// on other GPUs are peer memory, reached over the link between the GPUs. Flags hold the number of the
// round that wrote them, are stored with system-scope release and read with system-scope acquire.
// Every spin ends after `timeout_ns` and raises the abort flag of every rank, which ends all other
// spins too. All that is polled lies in the memory of the GPU that polls it: reads of host memory by
// thousands of waiting threads would hold up everything else on the bus.

typedef unsigned int u32;
typedef unsigned long long u64;

#define MAX_RANKS 16

// Sizes and places; the same on every rank but `rank`. Mirrored by `Emulation` in gpu.rs.
struct Emulation {
  unsigned char* slab[MAX_RANKS];
  // Routing tables of the draw in use, on this rank's GPU.
  const u32* rows;         // [s][d][c][cap]: token, or place in `crossing` when nodes differ
  const u32* row_count;    // [s][d][c]
  const u32* crossing;     // [s][node][c][cap]: tokens that cross to the node
  const u32* cross_count;  // [s][node][c]
  const unsigned short* members;  // [s][node][c][cap][8]: row of a crossing token in the flow to each
                                  // local index of the node, or NOT_THERE
  u64 timeout_ns;
  // Places in a slab, bytes.
  u64 at_input, at_dispatch, at_gateway, at_combine_gateway, at_combine, at_scratch;
  u64 at_abort, at_barrier, at_dispatch_flags, at_gateway_flags, at_combine_gateway_flags, at_combine_flags;
  u64 at_sums, at_sum_flags, at_credits;
  int rank, ranks, ranks_per_node, nodes;
  int tokens, channels, cap;  // cap = tokens / channels
  int warps_per_flow, crossing_warps, combine_crossing_warps;
  int dispatch_chunk, combine_chunk;  // rows a flag
  int dispatch_vectors, combine_vectors;  // 16-byte vectors a row
  int extra_dispatch, extra_combine;  // repeated stores over the link, pressure of this rank
  int credits;  // chunks of a channel that may be under way to a gateway; 0: no limit
  int sums;     // 1: a combine gateway adds up what the ranks of its node have for a token
};

#define NOT_THERE 0xffff
// A credit word holds the round, and in its low bits the chunks that are done with.
#define CREDIT_BITS 12
#define ALL_CHUNKS ((1u << CREDIT_BITS) - 1)

__device__ __forceinline__ u32 load_acquire(const u32* flag) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(u32* flag, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ u32 load_relaxed(const u32* flag) {
  u32 value;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ u32* abort_at(const Emulation& e, int rank) {
  return reinterpret_cast<u32*>(e.slab[rank] + e.at_abort);
}

// Waits until `flag` holds `round`; false when the emulation was ended.
__device__ bool wait_flag(const Emulation& e, const u32* flag, u32 round, u64 deadline) {
  for (u32 turn = 1; load_acquire(flag) != round; ++turn) {
    if ((turn & 0x3ff) == 0) {
      if (load_relaxed(abort_at(e, e.rank)) != 0) return false;
      if (deepxtrace::global_timer_ns() > deadline) {
        for (int rank = 0; rank < e.ranks; ++rank) store_release(abort_at(e, rank), 1);
        return false;
      }
    }
    __nanosleep(100);
  }
  return true;
}

__device__ __forceinline__ void copy_rows_flat(uint4* to, const uint4* from, int vectors,
                                               int lane) {
  int i = lane;
  for (; i + 96 < vectors; i += 128) {
    const uint4 a = from[i], b = from[i + 32], c = from[i + 64], d = from[i + 96];
    to[i] = a;
    to[i + 32] = b;
    to[i + 64] = c;
    to[i + 96] = d;
  }
  for (; i < vectors; i += 32) to[i] = from[i];
}

__device__ __forceinline__ int chunks(int rows, int chunk) { return (rows + chunk - 1) / chunk; }
__device__ __forceinline__ int smaller(int a, int b) { return a < b ? a : b; }

// The whole warp: the chunk is written, its flag may be seen. For a reader on this GPU device scope
// is enough: a system-scope fence would also wait for what this multiprocessor has under way on the
// link, and so make paths within a node slow when the link is.
__device__ __forceinline__ void publish(u32* flag, u32 round, int lane, bool near) {
  if (near) {
    __threadfence();
  } else {
    __threadfence_system();
  }
  __syncwarp();
  if (lane != 0) return;
  if (near) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(round) : "memory");
  } else {
    store_release(flag, round);
  }
}

// The whole warp waits for the first `count` flags; false when the emulation was ended.
__device__ bool wait_flags(const Emulation& e, const u32* flags, int count, u32 round,
                           u64 deadline, int lane) {
  bool fine = true;
  for (int i = lane; i < count && fine; i += 32) fine = wait_flag(e, flags + i, round, deadline);
  return __all_sync(0xffffffffu, fine);
}

__device__ __forceinline__ u32 flow(const Emulation& e, int s, int d, int c) {
  return static_cast<u32>((s * e.ranks + d) * e.channels + c);
}

__device__ __forceinline__ u32 cross(const Emulation& e, int s, int node, int c) {
  return static_cast<u32>((s * e.nodes + node) * e.channels + c);
}

// Flags a channel: one for each chunk of the smaller kind.
__device__ __forceinline__ int flags_a_channel(const Emulation& e) {
  return chunks(e.cap, smaller(e.dispatch_chunk, e.combine_chunk));
}

__device__ __forceinline__ u32* flag_at(const Emulation& e, int rank, u64 at, int index, int c) {
  return reinterpret_cast<u32*>(e.slab[rank] + at) +
         static_cast<u64>(index * e.channels + c) * flags_a_channel(e);
}

__device__ __forceinline__ uint4* row_at(const Emulation& e, int rank, u64 at, int index, int c,
                                         int row, int vectors) {
  return reinterpret_cast<uint4*>(e.slab[rank] + at) +
         (static_cast<u64>(index) * e.tokens + c * e.cap + row) * vectors;
}

// Where a gateway keeps a crossing token: with credits, in as many chunks as there are credits.
__device__ __forceinline__ uint4* gateway_row(const Emulation& e, int gateway, int from, int c,
                                              int place) {
  const int at = e.credits > 0 ? place % (e.credits * e.dispatch_chunk) : place;
  return row_at(e, gateway, e.at_gateway, from, c, at, e.dispatch_vectors);
}

// In the memory of the sender: what each of the warps that pass its tokens on is done with.
__device__ __forceinline__ u32* credits_at(const Emulation& e, int sender, int node, int c) {
  return reinterpret_cast<u32*>(e.slab[sender] + e.at_credits) +
         static_cast<u64>(node * e.channels + c) * e.ranks_per_node * e.warps_per_flow;
}

// The whole warp waits until all who pass on are done with the first `done` chunks.
__device__ bool wait_credits(const Emulation& e, const u32* credits, u32 done, u32 round,
                             u64 deadline, int lane) {
  bool fine = true;
  for (int i = lane; i < e.ranks_per_node * e.warps_per_flow && fine; i += 32) {
    for (u32 turn = 1;; ++turn) {
      const u32 word = load_acquire(credits + i);
      if (word >> CREDIT_BITS == round && (word & ALL_CHUNKS) >= done) break;
      if ((turn & 0x3ff) == 0) {
        if (load_relaxed(abort_at(e, e.rank)) != 0 || deepxtrace::global_timer_ns() > deadline) {
          for (int rank = 0; rank < e.ranks; ++rank) store_release(abort_at(e, rank), 1);
          fine = false;
          break;
        }
      }
      __nanosleep(100);
    }
  }
  return __all_sync(0xffffffffu, fine);
}

// The whole warp: it has read all that it needs of the first `done` chunks.
__device__ __forceinline__ void give_credit(u32* credit, u32 done, u32 round, int lane) {
  __syncwarp();
  if (lane == 0) store_release(credit, round << CREDIT_BITS | done);
}

// The other node number `i` (0 .. nodes - 2), seen from `node`.
__device__ __forceinline__ int other_node(int i, int node) { return i < node ? i : i + 1; }

// Stores of the pressure: the chunk again, `times` times, into this warp's scratch on `peer`.
__device__ void press(const Emulation& e, int peer, int warp, const uint4* from, int rows,
                      int vectors, int times, int lane) {
  uint4* scratch = reinterpret_cast<uint4*>(e.slab[peer] + e.at_scratch) +
                   static_cast<u64>(warp) * e.dispatch_chunk * e.dispatch_vectors;
  for (int n = 0; n < times; ++n) copy_rows_flat(scratch, from, rows * vectors, lane);
}

// ------------------------------------------------------------------------------ kernels

extern "C" __global__ void fill_input(Emulation e) {
  uint4* input = reinterpret_cast<uint4*>(e.slab[e.rank] + e.at_input);
  const u64 all = static_cast<u64>(e.tokens) * e.dispatch_vectors;
  for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < all;
       i += u64(gridDim.x) * blockDim.x) {
    const u32 token = static_cast<u32>(i / e.dispatch_vectors);
    const u32 place = static_cast<u32>(i % e.dispatch_vectors);
    input[i] = make_uint4(e.rank, token, place, (token * 2654435761u) ^ (place * 40503u));
  }
}

// Computation: one block that takes `ns`.
extern "C" __global__ void compute(u64 ns) {
  const u64 end = deepxtrace::global_timer_ns() + ns;
  while (deepxtrace::global_timer_ns() < end) __nanosleep(200);
}

// The barrier of all ranks. Block 0 signals and waits; the other blocks count the tokens of every
// destination, as a Notify does that computes its layout (`layout` = 1).
extern "C" __global__ void notify(Emulation e, u32 round, int stage, int layout, u32* counted,
                                  deepxtrace::NotifyCounters counters,
                                  deepxtrace::NotifyScratch* scratch) {
  if (threadIdx.x == 0) deepxtrace::notify_begin(counters, scratch);
  const int lane = threadIdx.x;
  if (blockIdx.x == 0 && lane < e.ranks) {
    const u64 deadline = deepxtrace::global_timer_ns() + e.timeout_ns;
    u32* mine = reinterpret_cast<u32*>(e.slab[lane] + e.at_barrier) + stage * MAX_RANKS + e.rank;
    store_release(mine, round);
    const u32* theirs =
        reinterpret_cast<u32*>(e.slab[e.rank] + e.at_barrier) + stage * MAX_RANKS + lane;
    wait_flag(e, theirs, round, deadline);
  } else if (blockIdx.x > 0 && layout) {
    for (int d = blockIdx.x - 1; d < e.ranks; d += gridDim.x - 1) {
      u32 sum = 0;
      for (int i = threadIdx.x; i < e.tokens; i += blockDim.x) {
        const int c = i / e.cap;
        sum += u32(i % e.cap) < e.row_count[flow(e, e.rank, d, c)] ? 1 : 0;
      }
      atomicAdd(counted + d, sum);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) deepxtrace::notify_end(counters, scratch);
}

// Waits for the tokens of source `s` in channel `c` and records them.
__device__ void receive(const Emulation& e, const u32* flags, int rows, int chunk, u32 round,
                        u64 deadline, int lane, int source,
                        const deepxtrace::CompletionCounters& counters) {
  if (rows == 0) return;
  const deepxtrace::CompletionTimer timer = deepxtrace::completion_begin();
  const bool fine = wait_flags(e, flags, chunks(rows, chunk), round, deadline, lane);
  if (fine && lane == 0) deepxtrace::completion_end(counters, source, timer, rows);
}

// Tokens to a rank of the own node: gathered by token, every `step`-th chunk from `first`.
__device__ void send_near(const Emulation& e, int d, int c, int first, int step, u32 round,
                          int lane) {
  const u32 f = flow(e, e.rank, d, c);
  const int rows = e.row_count[f], vectors = e.dispatch_vectors;
  const u32* tokens = e.rows + static_cast<u64>(f) * e.cap;
  u32* flags = flag_at(e, d, e.at_dispatch_flags, e.rank, c);
  for (int k = first; k < chunks(rows, e.dispatch_chunk); k += step) {
    const int end = smaller(rows, (k + 1) * e.dispatch_chunk);
    for (int row = k * e.dispatch_chunk; row < end; ++row)
      copy_rows_flat(row_at(e, d, e.at_dispatch, e.rank, c, row, vectors),
                     row_at(e, e.rank, e.at_input, 0, 0, tokens[row], vectors), vectors, lane);
    publish(flags + k, round, lane, true);
  }
}

// Tokens that cross to another node: to the gateway with this rank's local index there.
__device__ void send_crossing(const Emulation& e, int node, int c, int first, int step, u32 round,
                              u64 deadline, int lane) {
  const u32 f = cross(e, e.rank, node, c);
  const int rows = e.cross_count[f], vectors = e.dispatch_vectors;
  const int own = e.rank / e.ranks_per_node;
  const int gateway = node * e.ranks_per_node + e.rank % e.ranks_per_node;
  const u32* tokens = e.crossing + static_cast<u64>(f) * e.cap;
  u32* flags = flag_at(e, gateway, e.at_gateway_flags, own, c);
  const u32* credits = credits_at(e, e.rank, node, c);
  for (int k = first; k < chunks(rows, e.dispatch_chunk); k += step) {
    const int begin = k * e.dispatch_chunk, end = smaller(rows, begin + e.dispatch_chunk);
    if (e.credits > 0 && k >= e.credits &&
        !wait_credits(e, credits, k - e.credits + 1, round, deadline, lane))
      return;
    for (int row = begin; row < end; ++row)
      copy_rows_flat(gateway_row(e, gateway, own, c, row),
                     row_at(e, e.rank, e.at_input, 0, 0, tokens[row], vectors), vectors, lane);
    press(e, gateway, c * step + first, row_at(e, e.rank, e.at_input, 0, 0, begin, vectors),
          end - begin, vectors, e.extra_dispatch, lane);
    publish(flags + k, round, lane, false);
  }
}

// The same with credits: row by row, for the sender may be waiting for this warp to be done with the
// chunks before the one that it needs next.
__device__ void forward_with_credits(const Emulation& e, int source, int d, int c, int first,
                                     int step, u32 round, u64 deadline, int lane) {
  const u32 f = flow(e, source, d, c);
  const int rows = e.row_count[f], vectors = e.dispatch_vectors;
  const int from = source / e.ranks_per_node, node = e.rank / e.ranks_per_node;
  const u32* places = e.rows + static_cast<u64>(f) * e.cap;
  const u32* arrived = flag_at(e, e.rank, e.at_gateway_flags, from, c);
  u32* flags = flag_at(e, d, e.at_dispatch_flags, source, c);
  u32* credit = credits_at(e, source, node, c) + d % e.ranks_per_node * step + first;
  int here = -1, told = 0;
  for (int k = first; k < chunks(rows, e.dispatch_chunk); k += step) {
    const int begin = k * e.dispatch_chunk, end = smaller(rows, begin + e.dispatch_chunk);
    for (int row = begin; row < end; ++row) {
      const int needed = places[row] / e.dispatch_chunk;
      if (needed != here) {
        here = needed;
        const u32 seen = __shfl_sync(0xffffffffu, load_acquire(arrived + here), 0);
        if (here > told && (seen != round || here - told >= (e.credits + 1) / 2)) {
          give_credit(credit, here, round, lane);
          told = here;
        }
        if (!wait_flags(e, arrived + here, 1, round, deadline, lane)) return;
      }
      copy_rows_flat(row_at(e, d, e.at_dispatch, source, c, row, vectors),
                     gateway_row(e, e.rank, from, c, places[row]), vectors, lane);
    }
    publish(flags + k, round, lane, true);
  }
  give_credit(credit, ALL_CHUNKS, round, lane);
}

// The gateway passes tokens of its proxy source on to rank `d` of its node.
__device__ void forward_dispatch(const Emulation& e, int source, int d, int c, int first, int step,
                                 u32 round, u64 deadline, int lane) {
  if (e.credits > 0) {
    forward_with_credits(e, source, d, c, first, step, round, deadline, lane);
    return;
  }
  const u32 f = flow(e, source, d, c);
  const int rows = e.row_count[f], vectors = e.dispatch_vectors;
  const int from = source / e.ranks_per_node;
  const u32* places = e.rows + static_cast<u64>(f) * e.cap;
  const u32* arrived = flag_at(e, e.rank, e.at_gateway_flags, from, c);
  u32* flags = flag_at(e, d, e.at_dispatch_flags, source, c);
  for (int k = first; k < chunks(rows, e.dispatch_chunk); k += step) {
    const int begin = k * e.dispatch_chunk, end = smaller(rows, begin + e.dispatch_chunk);
    // Places grow with the row: the chunks between the first and the last place are needed.
    const int low = places[begin] / e.dispatch_chunk, high = places[end - 1] / e.dispatch_chunk;
    if (!wait_flags(e, arrived + low, high - low + 1, round, deadline, lane)) return;
    for (int row = begin; row < end; ++row)
      copy_rows_flat(row_at(e, d, e.at_dispatch, source, c, row, vectors),
                     row_at(e, e.rank, e.at_gateway, from, c, places[row], vectors), vectors,
                     lane);
    publish(flags + k, round, lane, true);
  }
}

// Whether warp `n` has a role of a kind of which there are `count`; otherwise `n` is lowered to the
// next kind. A kind begins with a block of its own: flows that share a multiprocessor with warps that
// wait for the link are slower than their like.
__device__ __forceinline__ bool role(int& n, int count) {
  if (n < count) return true;
  const int warps = blockDim.x / 32, whole = (count + warps - 1) / warps * warps;
  n = n < whole ? 0x40000000 : n - whole;
  return false;
}

extern "C" __global__ void __launch_bounds__(512, 2)
    dispatch(Emulation e, u32 round, deepxtrace::CompletionCounters final_recv,
             deepxtrace::CompletionCounters gateway_recv) {
  const int lane = threadIdx.x % 32, C = e.channels, W = e.warps_per_flow, R = e.ranks_per_node;
  const int node = e.rank / R, far = e.nodes - 1;
  const u64 deadline = deepxtrace::global_timer_ns() + e.timeout_ns;
  // Roles of a kind share blocks: what crosses the link has multiprocessors of its own.
  int n = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (role(n, e.ranks * C)) {
    const int s = n / C, c = n % C;
    receive(e, flag_at(e, e.rank, e.at_dispatch_flags, s, c), e.row_count[flow(e, s, e.rank, c)],
            e.dispatch_chunk, round, deadline, lane, s, final_recv);
  } else if (role(n, far * C)) {
    const int from = other_node(n / C, node), c = n % C, proxy = from * R + e.rank % R;
    receive(e, flag_at(e, e.rank, e.at_gateway_flags, from, c),
            e.cross_count[cross(e, proxy, node, c)], e.dispatch_chunk, round, deadline, lane,
            proxy, gateway_recv);
  } else if (role(n, far * C * e.crossing_warps)) {
    const int w = n % e.crossing_warps, f = n / e.crossing_warps;
    send_crossing(e, other_node(f / C, node), f % C, w, e.crossing_warps, round, deadline, lane);
  } else if (role(n, R * C * W)) {
    const int f = n / W;
    send_near(e, node * R + f / C, f % C, n % W, W, round, lane);
  } else if (role(n, far * R * C * W)) {
    const int f = n / W, from = other_node(f / (R * C), node);
    forward_dispatch(e, from * R + e.rank % R, node * R + (f / C) % R, f % C, n % W, W, round,
                     deadline, lane);
  }
}

// Results of this expert rank for `owner`: to the owner itself on the own node, otherwise to the
// gateway of this node with the owner's local index.
__device__ void send_results(const Emulation& e, int owner, int c, int first, int step, u32 round,
                             int lane) {
  const int R = e.ranks_per_node, node = e.rank / R, home = owner / R, vectors = e.combine_vectors;
  const int rows = e.row_count[flow(e, owner, e.rank, c)];
  const bool near = home == node;
  const int to = near ? owner : node * R + owner % R;
  const int index = near ? e.rank : home * R + e.rank % R;
  const u64 at = near ? e.at_combine : e.at_combine_gateway;
  u32* flags = flag_at(e, to, near ? e.at_combine_flags : e.at_combine_gateway_flags, index, c);
  for (int k = first; k < chunks(rows, e.combine_chunk); k += step) {
    const int end = smaller(rows, (k + 1) * e.combine_chunk);
    for (int row = k * e.combine_chunk; row < end; ++row)
      copy_rows_flat(row_at(e, to, at, index, c, row, vectors),
                     row_at(e, e.rank, e.at_dispatch, owner, c, row, e.dispatch_vectors), vectors,
                     lane);
    publish(flags + k, round, lane, true);
  }
}

// The gateway passes results of expert rank `expert` of its node on to the owner, over the link.
__device__ void forward_results(const Emulation& e, int owner, int expert, int c, int first,
                                int step, u32 round, u64 deadline, int lane, int warp) {
  const int R = e.ranks_per_node, index = owner / R * R + expert % R, vectors = e.combine_vectors;
  const int rows = e.row_count[flow(e, owner, expert, c)];
  const u32* arrived = flag_at(e, e.rank, e.at_combine_gateway_flags, index, c);
  u32* flags = flag_at(e, owner, e.at_combine_flags, expert, c);
  for (int k = first; k < chunks(rows, e.combine_chunk); k += step) {
    const int begin = k * e.combine_chunk, end = smaller(rows, begin + e.combine_chunk);
    if (!wait_flags(e, arrived + k, 1, round, deadline, lane)) return;
    const uint4* from = row_at(e, e.rank, e.at_combine_gateway, index, c, begin, vectors);
    // Rows of a channel are contiguous on both sides: the chunk is one piece.
    copy_rows_flat(row_at(e, owner, e.at_combine, expert, c, begin, vectors), from,
                   (end - begin) * vectors, lane);
    press(e, owner, warp, from, end - begin, vectors, e.extra_combine, lane);
    publish(flags + k, round, lane, false);
  }
}

__device__ __forceinline__ const unsigned short* members_at(const Emulation& e, int s, int node,
                                                            int c, int place) {
  return e.members + (static_cast<u64>(cross(e, s, node, c)) * e.cap + place) * 8;
}

__device__ __forceinline__ void add_vector(uint4& sum, const uint4& v) {
  sum.x += v.x;
  sum.y += v.y;
  sum.z += v.z;
  sum.w += v.w;
}

// The gateway adds up what the ranks of its node have for each token of `owner`, and sends one row a
// token over the link.
__device__ void send_sums(const Emulation& e, int owner, int c, int first, int step, u32 round,
                          u64 deadline, int lane, int warp) {
  const int R = e.ranks_per_node, node = e.rank / R, home = owner / R, vectors = e.combine_vectors;
  const int tokens = e.cross_count[cross(e, owner, node, c)];
  u32* flags = flag_at(e, owner, e.at_sum_flags, node, c);
  for (int k = first; k < chunks(tokens, e.combine_chunk); k += step) {
    const int begin = k * e.combine_chunk, end = smaller(tokens, begin + e.combine_chunk);
    // Lane `l` waits for the rows of local index `l`.
    bool fine = true;
    if (lane < R) {
      const u32* arrived = flag_at(e, e.rank, e.at_combine_gateway_flags, home * R + lane, c);
      int here = -1;
      for (int place = begin; place < end && fine; ++place) {
        const int row = members_at(e, owner, node, c, place)[lane];
        if (row == NOT_THERE || row / e.combine_chunk == here) continue;
        here = row / e.combine_chunk;
        fine = wait_flag(e, arrived + here, round, deadline);
      }
    }
    if (!__all_sync(0xffffffffu, fine)) return;
    for (int place = begin; place < end; ++place) {
      const unsigned short* rows = members_at(e, owner, node, c, place);
      uint4* to = row_at(e, owner, e.at_sums, node, c, place, vectors);
      for (int i = lane; i < vectors; i += 32) {
        uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int local = 0; local < 8; ++local) {
          if (local < R && rows[local] != NOT_THERE)
            add_vector(sum, row_at(e, e.rank, e.at_combine_gateway, home * R + local, c,
                                   rows[local], vectors)[i]);
        }
        to[i] = sum;
      }
    }
    press(e, owner, warp, row_at(e, e.rank, e.at_combine_gateway, home * R, c, begin, vectors),
          end - begin, vectors, e.extra_combine, lane);
    publish(flags + k, round, lane, false);
  }
}

// Waits for what expert rank `d` of another node has a part in: the sums from its first token to its
// last. So the logical source is known although the rows on the link are sums.
__device__ void receive_sums(const Emulation& e, int d, int c, u32 round, u64 deadline, int lane,
                             const deepxtrace::CompletionCounters& counters) {
  const u32 f = flow(e, e.rank, d, c);
  const int rows = e.row_count[f];
  if (rows == 0) return;
  const u32* places = e.rows + static_cast<u64>(f) * e.cap;
  const int low = places[0] / e.combine_chunk, high = places[rows - 1] / e.combine_chunk;
  const u32* flags = flag_at(e, e.rank, e.at_sum_flags, d / e.ranks_per_node, c);
  const deepxtrace::CompletionTimer timer = deepxtrace::completion_begin();
  const bool fine = wait_flags(e, flags + low, high - low + 1, round, deadline, lane);
  if (fine && lane == 0) deepxtrace::completion_end(counters, d, timer, rows);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    combine(Emulation e, u32 round, deepxtrace::CompletionCounters recv) {
  const int lane = threadIdx.x % 32, C = e.channels, W = e.warps_per_flow, R = e.ranks_per_node;
  const int node = e.rank / R, far = e.nodes - 1;
  const u64 deadline = deepxtrace::global_timer_ns() + e.timeout_ns;
  int n = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (role(n, e.ranks * C)) {
    const int d = n / C, c = n % C;
    if (e.sums != 0 && d / R != node) {
      receive_sums(e, d, c, round, deadline, lane, recv);
    } else {
      receive(e, flag_at(e, e.rank, e.at_combine_flags, d, c), e.row_count[flow(e, e.rank, d, c)],
              e.combine_chunk, round, deadline, lane, d, recv);
    }
  } else if (role(n, far * R * C * e.combine_crossing_warps)) {
    const int X = e.combine_crossing_warps;
    if (e.sums != 0) {
      const int f = n / (R * X), home = other_node(f / C, node);
      send_sums(e, home * R + e.rank % R, f % C, n % (R * X), R * X, round, deadline, lane, n);
    } else {
      const int f = n / X, home = other_node(f / (R * C), node);
      forward_results(e, home * R + e.rank % R, node * R + (f / C) % R, f % C, n % X, X, round,
                      deadline, lane, n);
    }
  } else if (role(n, e.ranks * C * W)) {
    const int f = n / W;
    send_results(e, f / C, f % C, n % W, W, round, lane);
  }
}

// Whether a vector is that of a token of rank `s`, `times` over.
__device__ __forceinline__ bool is_token(const uint4& v, u32 s, u32 token, u32 place, u32 times) {
  return v.x == times * s && v.y == times * token && v.z == times * place &&
         v.w == times * ((token * 2654435761u) ^ (place * 40503u));
}

// Compares what this rank received with what its sources hold: every vector of every row, in the
// dispatch area (`combine` = 0) or the combine areas. `wrong` counts the vectors that differ.
extern "C" __global__ void verify(Emulation e, int combine, u64* wrong) {
  const int vectors = combine ? e.combine_vectors : e.dispatch_vectors, R = e.ranks_per_node;
  const int node = e.rank / R;
  for (int f = blockIdx.x; f < e.ranks * e.channels; f += gridDim.x) {
    const int other = f / e.channels, c = f % e.channels;
    if (combine && e.sums != 0 && other / R != node) continue;
    const int s = combine ? e.rank : other, d = combine ? other : e.rank;
    const u32 id = flow(e, s, d, c);
    for (int i = threadIdx.x; i < int(e.row_count[id]) * vectors; i += blockDim.x) {
      u32 token = e.rows[static_cast<u64>(id) * e.cap + i / vectors];
      if (s / R != d / R) token = e.crossing[static_cast<u64>(cross(e, s, d / R, c)) * e.cap + token];
      const uint4 v = row_at(e, e.rank, combine ? e.at_combine : e.at_dispatch, other, c,
                             i / vectors, vectors)[i % vectors];
      if (!is_token(v, s, token, i % vectors, 1)) atomicAdd(wrong, 1ULL);
    }
  }
  if (!combine || e.sums == 0) return;
  for (int f = blockIdx.x; f < (e.nodes - 1) * e.channels; f += gridDim.x) {
    const int from = other_node(f / e.channels, node), c = f % e.channels;
    const u32 id = cross(e, e.rank, from, c);
    for (int i = threadIdx.x; i < int(e.cross_count[id]) * vectors; i += blockDim.x) {
      const int place = i / vectors;
      const unsigned short* rows = members_at(e, e.rank, from, c, place);
      u32 times = 0;
      for (int local = 0; local < R; ++local) times += rows[local] != NOT_THERE ? 1 : 0;
      const uint4 v = row_at(e, e.rank, e.at_sums, from, c, place, vectors)[i % vectors];
      const u32 token = e.crossing[static_cast<u64>(id) * e.cap + place];
      if (!is_token(v, e.rank, token, i % vectors, times)) atomicAdd(wrong, 1ULL);
    }
  }
}
