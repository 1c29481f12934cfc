/* Preloaded beside the probe: writing to a trace file never returns once STUB_DISK_BLOCKS exists. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int file, const void *buffer, size_t size) {
  const char *flag = getenv("STUB_DISK_BLOCKS");
  char link[64], name[512] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (flag && readlink(link, name, sizeof name - 1) > 0 && strstr(name, ".jsonl"))
    while (access(flag, F_OK) == 0) pause();
  return syscall(SYS_write, file, buffer, size);
}
