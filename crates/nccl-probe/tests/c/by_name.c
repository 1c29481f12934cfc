/* A program that is not linked to NCCL. Arguments: what to do, then libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct comm *comm_t;
typedef struct { char internal[128]; } id_t128;
#define P(x) ((void *)(long)(x))

static void *open_or_die(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) { fprintf(stderr, "%s\n", dlerror()); exit(7); }
  return handle;
}

/* As ctypes does: every function by name from a handle. */
static void by_name(const char *library, long calls) {
  void *handle = open_or_die(library);
  int (*get_id)(id_t128 *) = dlsym(handle, "ncclGetUniqueId");
  int (*init)(comm_t *, int, id_t128, int) = dlsym(handle, "ncclCommInitRank");
  int (*reduce)(const void *, void *, size_t, int, int, comm_t, void *) = dlsym(handle, "ncclAllReduce");
  int (*start)(void) = dlsym(handle, "ncclGroupStart");
  int (*end)(void) = dlsym(handle, "ncclGroupEnd");
  int (*bcast)(void *, size_t, int, int, comm_t, void *) = dlsym(handle, "ncclBcast");
  int (*error)(comm_t, int *) = dlsym(handle, "ncclCommGetAsyncError");
  id_t128 id;
  comm_t comm;
  int copy;
  get_id(&id);
  if (init(&comm, 2, id, 1)) exit(9);
  start();
  for (long i = 0; i < calls; i++) reduce(P(1), P(2), i + 1, 7, 0, comm, P(3));
  end();
  bcast(P(1), 77, 7, 0, comm, P(3));
  error(comm, &copy);
  printf("alltoall %d nonsense %d copy %d\n", dlsym(handle, "ncclAlltoAll") != NULL,
         dlsym(handle, "ncclNoSuchThing") != NULL, copy - 100);
}

int main(int n, char **a) {
  if (n > 2 && !strcmp(a[1], "by_name")) {
    for (int i = 2; i < n; i++) by_name(a[i], 3);
  } else if (n > 2 && !strcmp(a[1], "plugin")) {
    for (int i = 2; i < n; i++) {
      int (*run)(int) = dlsym(open_or_die(a[i]), "plugin_run");
      printf("copy %d\n", run(10 * (i - 1)));
    }
    for (int i = 2; i < n; i++) {
      int (*run)(int) = dlsym(open_or_die(a[i]), "plugin_run");
      printf("copy %d\n", run(1));
    }
  } else if (n > 1 && !strcmp(a[1], "next")) {
    /* What the linker finds behind this program, and what it finds everywhere. */
    printf("next %d default %d text %d\n", dlsym(RTLD_NEXT, "malloc") != NULL,
           dlsym(RTLD_DEFAULT, "ncclAllReduce") != NULL, dlsym(RTLD_NEXT, "nccl") != NULL);
  } else return 6;
  return 0;
}
