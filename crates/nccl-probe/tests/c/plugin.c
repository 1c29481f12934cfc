/* A library that is linked to an NCCL of its own and loaded later, out of the global scope: the way
 * Python loads extensions. */
typedef struct comm *comm_t;
typedef struct { char internal[128]; } id_t128;
int ncclGetUniqueId(id_t128 *);
int ncclCommInitRank(comm_t *, int, id_t128, int);
int ncclCommSplit(comm_t, int, int, comm_t *, void *);
int ncclCommGetAsyncError(comm_t, int *);
int ncclCommDestroy(comm_t);
int ncclAllReduce(const void *, void *, unsigned long, int, int, comm_t, void *);
int ncclGroupStart(void);
int ncclGroupEnd(void);

/* Returns which copy answers. */
int plugin_run(int count) {
  id_t128 id;
  comm_t comm, child;
  int copy = 0;
  ncclGetUniqueId(&id);
  if (ncclGroupStart()) return -1;
  if (ncclCommInitRank(&comm, 4, id, 2)) return -2;
  if (ncclGroupEnd()) return -3;
  for (int i = 0; i < count; i++)
    if (ncclAllReduce((void *)1, (void *)2, i + 1, 7, 0, comm, (void *)3)) return -4;
  if (ncclCommSplit(comm, 1, 0, &child, 0)) return -5;
  if (ncclAllReduce((void *)1, (void *)2, 500, 7, 0, child, (void *)3)) return -6;
  ncclCommGetAsyncError(comm, &copy);
  ncclCommDestroy(child);
  return copy - 100;
}
