/* Calls NCCL the way programs do. The first argument says which way. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct comm *comm_t;
typedef struct { char internal[128]; } id_t128;
typedef struct { size_t size; unsigned magic, version; int blocking; } config_t;
typedef void *stream_t;
#define P(x) ((void *)(long)(x))

int ncclGetVersion(int *);
const char *ncclGetErrorString(int);
int ncclGetUniqueId(id_t128 *);
int ncclCommInitRank(comm_t *, int, id_t128, int);
int ncclCommInitRankConfig(comm_t *, int, id_t128, int, config_t *);
int ncclCommInitRankScalable(comm_t *, int, int, int, id_t128 *, config_t *);
int ncclCommInitAll(comm_t *, int, const int *);
int ncclCommSplit(comm_t, int, int, comm_t *, config_t *);
int ncclCommShrink(comm_t, int *, int, comm_t *, config_t *, int);
int ncclCommGrow(comm_t, int, const id_t128 *, int, comm_t *, config_t *);
int ncclCommFinalize(comm_t);
int ncclCommDestroy(comm_t);
int ncclCommAbort(comm_t);
int ncclCommRevoke(comm_t, int);
int ncclCommGetAsyncError(comm_t, int *);
int ncclMemAlloc(void **, size_t);
int ncclCommWindowRegister(comm_t, void *, size_t, void **, int);
int ncclRedOpCreatePreMulSum(int *, void *, int, int, comm_t);
int ncclRedOpDestroy(int, comm_t);
int ncclAllReduce(const void *, void *, size_t, int, int, comm_t, stream_t);
int ncclReduceScatter(const void *, void *, size_t, int, int, comm_t, stream_t);
int ncclReduce(const void *, void *, size_t, int, int, int, comm_t, stream_t);
int ncclBroadcast(const void *, void *, size_t, int, int, comm_t, stream_t);
int ncclBcast(void *, size_t, int, int, comm_t, stream_t);
int ncclAllGather(const void *, void *, size_t, int, comm_t, stream_t);
int ncclAlltoAll(const void *, void *, size_t, int, comm_t, stream_t);
int ncclGather(const void *, void *, size_t, int, int, comm_t, stream_t);
int ncclScatter(const void *, void *, size_t, int, int, comm_t, stream_t);
int ncclAllReduceConfig(const void *, void *, size_t, int, int, comm_t, stream_t, void *);
int ncclReduceScatterConfig(const void *, void *, size_t, int, int, comm_t, stream_t, void *);
int ncclReduceConfig(const void *, void *, size_t, int, int, int, comm_t, stream_t, void *);
int ncclBroadcastConfig(const void *, void *, size_t, int, int, comm_t, stream_t, void *);
int ncclAllGatherConfig(const void *, void *, size_t, int, comm_t, stream_t, void *);
int ncclAlltoAllConfig(const void *, void *, size_t, int, comm_t, stream_t, void *);
int ncclGatherConfig(const void *, void *, size_t, int, int, comm_t, stream_t, void *);
int ncclScatterConfig(const void *, void *, size_t, int, int, comm_t, stream_t, void *);
int ncclSend(const void *, size_t, int, int, comm_t, stream_t);
int ncclRecv(void *, size_t, int, int, comm_t, stream_t);
int ncclPutSignal(const void *, size_t, int, int, void *, size_t, int, int, unsigned, comm_t, stream_t);
int ncclSignal(int, int, int, unsigned, comm_t, stream_t);
int ncclWaitSignal(int, void *, comm_t, stream_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void *);

static comm_t begin(int nranks, int rank) {
  id_t128 id;
  comm_t comm;
  ncclGetUniqueId(&id);
  if (ncclCommInitRank(&comm, nranks, id, rank)) exit(9);
  return comm;
}

static void pace(long ns) {
  struct timespec pause = {ns / 1000000000, ns % 1000000000};
  nanosleep(&pause, NULL);
}

/* Every function once, each argument a number of its own. */
static void all(void) {
  comm_t c = begin(8, 3), made, four[4];
  id_t128 ids[2];
  config_t config = {sizeof config, 1, 2, 1};
  int op, excluded[2] = {5, 1}, value, devices[2] = {0, 1};
  void *window;
  ncclGetUniqueId(&ids[0]);
  ncclGetUniqueId(&ids[1]);
  ids[1].internal[0] = 99;
  printf("comm %p\n", (void *)c);
  ncclAllReduce(P(11), P(12), 13, 7, 2, c, P(14));
  ncclReduceScatter(P(21), P(22), 23, 9, 4, c, P(24));
  ncclReduce(P(31), P(32), 33, 6, 1, 5, c, P(34));
  ncclBroadcast(P(41), P(42), 43, 1, 6, c, P(44));
  ncclBcast(P(51), 52, 2, 7, c, P(53));
  ncclAllGather(P(61), P(62), 63, 10, c, P(64));
  ncclAlltoAll(P(71), P(72), 73, 11, c, P(74));
  ncclGather(P(81), P(82), 83, 3, 2, c, P(84));
  ncclScatter(P(91), P(92), 93, 4, 1, c, P(94));
  ncclAllReduceConfig(P(111), P(112), 113, 7, 3, c, P(114), P(115));
  ncclReduceScatterConfig(P(121), P(122), 123, 7, 0, c, P(124), P(125));
  ncclReduceConfig(P(131), P(132), 133, 7, 1, 4, c, P(134), P(135));
  ncclBroadcastConfig(P(141), P(142), 143, 7, 5, c, P(144), P(145));
  ncclAllGatherConfig(P(151), P(152), 153, 7, c, P(154), P(155));
  ncclAlltoAllConfig(P(161), P(162), 163, 7, c, P(164), P(165));
  ncclGatherConfig(P(171), P(172), 173, 7, 6, c, P(174), P(175));
  ncclScatterConfig(P(181), P(182), 183, 7, 7, c, P(184), P(185));
  ncclSend(P(201), 202, 8, 4, c, P(203));
  ncclRecv(P(211), 212, 5, 2, c, P(213));
  ncclPutSignal(P(221), 222, 7, 1, P(223), 224, 225, 226, 227, c, P(228));
  ncclSignal(6, 231, 232, 233, c, P(234));
  ncclWaitSignal(3, P(241), c, P(242));
  ncclRedOpCreatePreMulSum(&op, P(251), 7, 1, c);
  ncclAllReduce(P(261), P(262), 263, 7, op, c, P(264));
  ncclRedOpDestroy(op, c);
  ncclGroupStart();
  ncclGroupSimulateEnd(P(271));
  if (ncclCommInitRankConfig(&made, 2, ids[0], 1, &config)) exit(9);
  ncclCommFinalize(made);
  ncclCommDestroy(made);
  if (ncclCommInitRankScalable(&made, 5, 4, 2, ids, NULL)) exit(9);
  ncclCommAbort(made);
  if (ncclCommInitAll(four, 2, devices)) exit(9);
  ncclAllReduce(P(1), P(2), 3, 7, 0, four[1], P(4));
  if (ncclCommSplit(c, 17, 2, &made, NULL)) exit(9);
  ncclAllReduce(P(1), P(2), 3, 7, 0, made, P(4));
  if (ncclCommSplit(c, -1, 0, &made, NULL) || made) exit(9);
  if (ncclCommShrink(c, excluded, 2, &made, NULL, 1)) exit(9);
  ncclAllReduce(P(1), P(2), 3, 7, 0, made, P(4));
  if (ncclCommGrow(c, 10, &ids[1], -1, &made, NULL)) exit(9);
  if (ncclCommGrow(NULL, 10, &ids[1], 9, &made, NULL)) exit(9);
  ncclCommRevoke(c, 0);
  /* Passed through. */
  ncclGetVersion(&value);
  if (value != 23203 || strcmp(ncclGetErrorString(3), "a text")) exit(9);
  ncclCommGetAsyncError(c, &value);
  if (value != 101) exit(9);
  ncclMemAlloc(P(301), 302);
  ncclCommWindowRegister(c, P(311), 312, &window, 313);
}

static void loop(comm_t comm, long calls, long pause_ns) {
  for (long i = 0; i < calls; i++) {
    ncclAllReduce(P(1), P(2), 1 + i, 7, 0, comm, P(3));
    if (pause_ns) pace(pause_ns);
  }
}

struct work { comm_t comm; long calls; };
static void *thread(void *argument) {
  struct work *work = argument;
  loop(work->comm, work->calls, 0);
  return NULL;
}

/* Threads share one communicator and each have one of their own. */
static void threads(long count, long calls) {
  comm_t shared = begin(4, 0);
  pthread_t handles[64];
  struct work works[64];
  for (int round = 0; round < 2; round++) {
    for (long i = 0; i < count; i++) {
      works[i] = (struct work){i % 2 ? shared : begin(4, 0), calls};
      pthread_create(&handles[i], NULL, thread, &works[i]);
    }
    for (long i = 0; i < count; i++) pthread_join(handles[i], NULL);
  }
}

static void groups(void) {
  comm_t c = begin(4, 1), made[2] = {P(-1), P(-1)}, child;
  id_t128 ids[2];
  ncclGetUniqueId(&ids[0]);
  ids[1] = ids[0];
  ids[1].internal[127] = 1;
  ncclGroupStart();
  ncclSend(P(1), 10, 7, 0, c, P(5));
  ncclGroupStart();
  ncclRecv(P(1), 20, 7, 0, c, P(5));
  ncclGroupEnd();
  ncclSend(P(1), 30, 7, 0, c, P(5));
  ncclSend(P(1), 40, 7, 2, c, P(5));
  ncclGroupEnd();
  ncclSend(P(1), 50, 7, 0, c, P(5));
  ncclGroupStart();
  ncclCommInitRank(&made[0], 2, ids[0], 0);
  ncclCommInitRank(&made[1], 2, ids[1], 1);
  ncclCommSplit(c, 3, 1, &child, NULL);
  ncclGroupEnd();
  ncclAllReduce(P(1), P(2), 60, 7, 0, made[0], P(5));
  ncclAllReduce(P(1), P(2), 61, 7, 0, made[1], P(5));
  ncclAllReduce(P(1), P(2), 62, 7, 0, child, P(5));
  ncclAllReduce(P(1), P(2), 0, 7, 0, c, P(5));
  ncclAllReduce(P(1), P(2), 63, 7, 0, c, P(5));
}

static void not_blocking(void) {
  comm_t comm = NULL, child = NULL;
  id_t128 id;
  config_t config = {sizeof config, 1, 2, 0};
  ncclGetUniqueId(&id);
  if (ncclCommInitRankConfig(&comm, 6, id, 5, &config) != 7) exit(9);
  while (!__atomic_load_n(&comm, __ATOMIC_ACQUIRE)) pace(1000000);
  if (ncclCommSplit(comm, 0, 2, &child, &config) != 7) exit(9);
  while (!__atomic_load_n(&child, __ATOMIC_ACQUIRE)) pace(1000000);
  loop(child, 1, 0);
  loop(comm, 1, 0);
}

static void forks(void) {
  comm_t comm = begin(2, 0);
  loop(comm, 5, 0);
  pid_t child = fork();
  if (!child) {
    comm_t own = begin(2, 1);
    loop(own, 7, 0);
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  if (status) exit(8);
  child = fork();
  if (!child) exit(0); /* never calls NCCL */
  waitpid(child, &status, 0);
  loop(comm, 5, 0);
}

/* One rank of `size`, as the launcher says which: `calls` calls. Rank `lazy` makes half of them and
 * then does something else for 4 s. */
static void one_of(long size, long calls, long lazy) {
  const char *names[] = {"RANK", "OMPI_COMM_WORLD_RANK"}, *text = NULL;
  for (int i = 0; i < 2 && !text; i++) text = getenv(names[i]);
  if (!text) exit(7);
  long rank = atol(text);
  loop(begin(size, rank), rank == lazy ? calls / 2 : calls, 1000000);
  if (rank == lazy) sleep(4);
}

int main(int n, char **a) {
  const char *way = n > 1 ? a[1] : "";
  long x = n > 2 ? atol(a[2]) : 0, y = n > 3 ? atol(a[3]) : 0;
  if (!strcmp(way, "all")) all();
  else if (!strcmp(way, "burst")) loop(begin(2, 0), x, y);
  else if (!strcmp(way, "threads")) threads(x, y);
  else if (!strcmp(way, "groups")) groups();
  else if (!strcmp(way, "not_blocking")) not_blocking();
  else if (!strcmp(way, "fork")) forks();
  else if (!strcmp(way, "missing")) {
    comm_t comm = begin(2, 0);
    for (int i = 0; i < 3; i++) printf("%d\n", ncclAlltoAll(P(1), P(2), 3, 7, comm, P(4)));
    printf("%d\n", ncclCommWindowRegister(comm, P(1), 2, P(3), 4));
    loop(comm, 1, 0);
  } else if (!strcmp(way, "capture")) {
    comm_t comm = begin(2, 0);
    long streams[] = {0xcafe, 0xdead, 0, 0xcafe};
    for (int i = 0; i < 4; i++) ncclAllReduce(P(1), P(2), i + 1, 7, 0, comm, P(streams[i]));
  } else if (!strcmp(way, "kill")) { /* says when x calls have been recorded, then waits */
    loop(begin(2, 0), x, y);
    puts("done");
    fflush(stdout);
    for (;;) pause();
  } else if (!strcmp(way, "_exit")) {
    loop(begin(2, 0), x, 0);
    _exit(3);
  } else if (!strcmp(way, "bursts")) { /* x bursts of y calls, a second apart */
    comm_t comm = begin(2, 0);
    for (long i = 0; i < x; i++) { loop(comm, y, 0); sleep(1); }
  } else if (!strcmp(way, "rank_of")) { /* size, calls, and which rank is lazy */
    one_of(x, y, n > 4 ? atol(a[4]) : -1);
  } else if (!strcmp(way, "none")) {
  } else return 6;
  return 0;
}
