/* A stand-in for libnccl.so.2 with the signatures of NCCL 2.32. It moves no data.
 *
 * Built with -DOLD it lacks what came after 2.27. Environment:
 *   STUB_LOG   file that gets a line with all arguments of each call
 *   STUB_FAIL  "ncclAllReduce:3": that function returns 3
 *   STUB_SLEEP_MS  time that a split takes
 * Communicators made in a group, and those that do not block, are handed out late, as NCCL does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
typedef int ncclResult_t;
typedef struct comm { long magic; int rank, nranks, copy; } *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { size_t size; unsigned magic, version; int blocking; } ncclConfig_t;
typedef void *cudaStream_t;
#ifndef COPY
#define COPY 1
#endif
#define ARG(x) ((long)(intptr_t)(x))

static int log_file = -2;
static const char *fail_text;

static ncclResult_t call(const char *name, int n, ...) {
  if (log_file == -2) {
    const char *path = getenv("STUB_LOG");
    fail_text = getenv("STUB_FAIL");
    log_file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  }
  if (log_file >= 0) {
    char line[1024];
    int at = snprintf(line, sizeof line, "%d %s", COPY, name);
    va_list list;
    va_start(list, n);
    while (n--) at += snprintf(line + at, sizeof line - at, " %ld", va_arg(list, long));
    va_end(list);
    line[at++] = '\n';
    if (write(log_file, line, at) < 0) abort();
  }
  size_t length = strlen(name);
  if (fail_text && !strncmp(fail_text, name, length) && fail_text[length] == ':')
    return atoi(fail_text + length + 1);
  return 0;
}

struct promise { ncclComm_t *place, comm; };
static __thread int depth;
static __thread struct promise promises[64];
static __thread int promised;

static void *deliver_late(void *argument) {
  struct promise *promise = argument;
  usleep(30000);
  __atomic_store_n(promise->place, promise->comm, __ATOMIC_RELEASE);
  free(promise);
  return NULL;
}

static ncclResult_t make(ncclComm_t *place, int rank, int nranks, ncclConfig_t *config) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  *comm = (struct comm){0x6e63636c, rank, nranks, COPY};
  if (config && config->blocking == 0) {
    pthread_t thread;
    struct promise *promise = malloc(sizeof *promise);
    *promise = (struct promise){place, comm};
    *place = NULL;
    pthread_create(&thread, NULL, deliver_late, promise);
    pthread_detach(thread);
    return 7;
  }
  if (depth > 0) {
    *place = NULL;
    promises[promised++] = (struct promise){place, comm};
  } else {
    *place = comm;
  }
  return 0;
}

API ncclResult_t ncclGetVersion(int *version) { *version = 23203; return call("ncclGetVersion", 1, ARG(version)); }
API const char *ncclGetErrorString(ncclResult_t result) { call("ncclGetErrorString", 1, (long)result); return "a text"; }
API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)(i * 7 + COPY);
  return call("ncclGetUniqueId", 0);
}
API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  ncclResult_t result = call("ncclCommInitRankConfig", 5, ARG(comm), (long)nranks, (long)id.internal[5], (long)rank, ARG(config));
  return result ? result : make(comm, rank, nranks, config);
}
API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  ncclResult_t result = call("ncclCommInitRank", 4, ARG(comm), (long)nranks, (long)id.internal[5], (long)rank);
  return result ? result : make(comm, rank, nranks, NULL);
}
API ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int n, ncclUniqueId *ids, ncclConfig_t *config) {
  ncclResult_t result = call("ncclCommInitRankScalable", 6, ARG(comm), (long)nranks, (long)rank, (long)n, ARG(ids), ARG(config));
  return result ? result : make(comm, rank, nranks, config);
}
API ncclResult_t ncclCommInitAll(ncclComm_t *comm, int n, const int *devices) {
  ncclResult_t result = call("ncclCommInitAll", 3, ARG(comm), (long)n, ARG(devices));
  for (int i = 0; !result && i < n; i++) make(comm + i, i, n, NULL);
  return result;
}
API ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm, ncclConfig_t *config) {
  ncclResult_t result = call("ncclCommSplit", 5, ARG(parent), (long)color, (long)key, ARG(comm), ARG(config));
  const char *pause = getenv("STUB_SLEEP_MS");
  if (pause) usleep(1000 * atoi(pause));
  if (result) return result;
  if (color == -1) { *comm = NULL; return 0; }
  return make(comm, key, parent->nranks / 2, config);
}
API ncclResult_t ncclCommFinalize(ncclComm_t comm) { return call("ncclCommFinalize", 1, ARG(comm)); }
API ncclResult_t ncclCommDestroy(ncclComm_t comm) { ncclResult_t result = call("ncclCommDestroy", 1, ARG(comm)); free(comm); return result; }
API ncclResult_t ncclCommAbort(ncclComm_t comm) { ncclResult_t result = call("ncclCommAbort", 1, ARG(comm)); free(comm); return result; }
API ncclResult_t ncclCommCount(ncclComm_t comm, int *count) { *count = comm->nranks; return 0; }
API ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) { *rank = comm->rank; return 0; }
API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) { *error = 100 + COPY; return call("ncclCommGetAsyncError", 2, ARG(comm), ARG(error)); }
API ncclResult_t ncclMemAlloc(void **place, size_t size) { return call("ncclMemAlloc", 2, ARG(place), (long)size); }
API ncclResult_t ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, ncclComm_t comm) {
  *op = 812748662;
  return call("ncclRedOpCreatePreMulSum", 5, ARG(op), ARG(scalar), (long)type, (long)residence, ARG(comm));
}
API ncclResult_t ncclRedOpDestroy(int op, ncclComm_t comm) { return call("ncclRedOpDestroy", 2, (long)op, ARG(comm)); }

#define A1 const void *s, void *r, size_t count, int type, ncclComm_t comm, cudaStream_t stream
#define V1 ARG(s), ARG(r), (long)count, (long)type, ARG(comm), ARG(stream)
#define A2 const void *s, void *r, size_t count, int type, int x, ncclComm_t comm, cudaStream_t stream
#define V2 ARG(s), ARG(r), (long)count, (long)type, (long)x, ARG(comm), ARG(stream)
#define A3 const void *s, void *r, size_t count, int type, int op, int root, ncclComm_t comm, cudaStream_t stream
#define V3 ARG(s), ARG(r), (long)count, (long)type, (long)op, (long)root, ARG(comm), ARG(stream)
API ncclResult_t ncclAllReduce(A2) { return call("ncclAllReduce", 7, V2); }
API ncclResult_t ncclReduceScatter(A2) { return call("ncclReduceScatter", 7, V2); }
API ncclResult_t ncclReduce(A3) { return call("ncclReduce", 8, V3); }
API ncclResult_t ncclBroadcast(A2) { return call("ncclBroadcast", 7, V2); }
API ncclResult_t ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t comm, cudaStream_t stream) {
  call("ncclBcast", 6, ARG(buffer), (long)count, (long)type, (long)root, ARG(comm), ARG(stream));
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
API ncclResult_t ncclAllGather(A1) { return call("ncclAllGather", 6, V1); }
API ncclResult_t ncclSend(const void *s, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclSend", 6, ARG(s), (long)count, (long)type, (long)peer, ARG(comm), ARG(stream));
}
API ncclResult_t ncclRecv(void *r, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclRecv", 6, ARG(r), (long)count, (long)type, (long)peer, ARG(comm), ARG(stream));
}
API ncclResult_t ncclGroupStart(void) { depth++; return call("ncclGroupStart", 0); }
static ncclResult_t end(const char *name, long argument, int n) {
  ncclResult_t result = call(name, n, argument);
  if (--depth == 0) {
    for (int i = 0; i < promised; i++) *promises[i].place = promises[i].comm;
    promised = 0;
  }
  return result;
}
API ncclResult_t ncclGroupEnd(void) { return end("ncclGroupEnd", 0, 0); }
API ncclResult_t ncclGroupSimulateEnd(void *info) { return end("ncclGroupSimulateEnd", ARG(info), 1); }

#ifndef OLD
API ncclResult_t ncclAlltoAll(A1) { return call("ncclAlltoAll", 6, V1); }
API ncclResult_t ncclGather(A2) { return call("ncclGather", 7, V2); }
API ncclResult_t ncclScatter(A2) { return call("ncclScatter", 7, V2); }
API ncclResult_t ncclAllReduceConfig(A2, void *config) { return call("ncclAllReduceConfig", 8, V2, ARG(config)); }
API ncclResult_t ncclReduceScatterConfig(A2, void *config) { return call("ncclReduceScatterConfig", 8, V2, ARG(config)); }
API ncclResult_t ncclReduceConfig(A3, void *config) { return call("ncclReduceConfig", 9, V3, ARG(config)); }
API ncclResult_t ncclBroadcastConfig(A2, void *config) { return call("ncclBroadcastConfig", 8, V2, ARG(config)); }
API ncclResult_t ncclAllGatherConfig(A1, void *config) { return call("ncclAllGatherConfig", 7, V1, ARG(config)); }
API ncclResult_t ncclAlltoAllConfig(A1, void *config) { return call("ncclAlltoAllConfig", 7, V1, ARG(config)); }
API ncclResult_t ncclGatherConfig(A2, void *config) { return call("ncclGatherConfig", 8, V2, ARG(config)); }
API ncclResult_t ncclScatterConfig(A2, void *config) { return call("ncclScatterConfig", 8, V2, ARG(config)); }
API ncclResult_t ncclPutSignal(const void *s, size_t count, int type, int peer, void *window, size_t offset, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclPutSignal", 11, ARG(s), (long)count, (long)type, (long)peer, ARG(window), (long)offset, (long)signal, (long)context, (long)flags, ARG(comm), ARG(stream));
}
API ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclSignal", 6, (long)peer, (long)signal, (long)context, (long)flags, ARG(comm), ARG(stream));
}
API ncclResult_t ncclWaitSignal(int n, void *waits, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclWaitSignal", 4, (long)n, ARG(waits), ARG(comm), ARG(stream));
}
API ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) { return call("ncclCommRevoke", 2, ARG(comm), (long)flags); }
API ncclResult_t ncclCommShrink(ncclComm_t parent, int *excluded, int n, ncclComm_t *comm, ncclConfig_t *config, int flags) {
  ncclResult_t result = call("ncclCommShrink", 6, ARG(parent), ARG(excluded), (long)n, ARG(comm), ARG(config), (long)flags);
  return result ? result : make(comm, parent->rank - 1, parent->nranks - n, config);
}
API ncclResult_t ncclCommGrow(ncclComm_t parent, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *comm, ncclConfig_t *config) {
  ncclResult_t result = call("ncclCommGrow", 6, ARG(parent), (long)nranks, ARG(id), (long)rank, ARG(comm), ARG(config));
  return result ? result : make(comm, parent ? parent->rank : rank, nranks, config);
}
API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, void **window, int flags) {
  return call("ncclCommWindowRegister", 5, ARG(comm), ARG(buffer), (long)size, ARG(window), (long)flags);
}
#endif
