/* A stand-in for libcuda.so.1: two streams are special. */
int cuStreamIsCapturing(void *stream, int *status) {
  if (stream == (void *)0xcafe) { *status = 1; return 0; }
  if (stream == (void *)0xdead) { *status = 1; return 906; } /* the answer is an error */
  *status = 0;
  return 0;
}
