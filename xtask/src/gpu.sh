#!/usr/bin/env bash
# Runs the GPU tests and examples that lie beside this script, on a machine that needs a CUDA
# driver, NVRTC and NCCL, and no Rust. Prints "N passed, N failed" last.
#
# SANITIZE=1 runs the examples under compute-sanitizer too, where it is installed.
cd "$(dirname "$0")" || exit 1
passed=0
failed=0
step() { # name, seconds, command...
  local name=$1 seconds=$2
  shift 2
  echo "== $name"
  if timeout "$seconds" "$@"; then
    passed=$((passed + 1))
  else
    echo "== $name FAILED ($?)"
    failed=$((failed + 1))
  fi
}
chmod +x gpu gpu_mpi cuda_counters ep_emulator 2>/dev/null
step "GPU tests" 900 ./gpu
if [ -e gpu_mpi ] && command -v mpirun >/dev/null; then
  step "GPU test over MPI" 120 mpirun --allow-run-as-root --oversubscribe -n 2 ./gpu_mpi
fi
step "example cuda_counters" 120 ./cuda_counters
step "example cuda_counters over NCCL" 120 ./cuda_counters nccl
step "example ep_emulator" 180 ./ep_emulator
if [ "${SANITIZE:-0}" = 1 ] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck initcheck synccheck; do
    step "cuda_counters under $tool" 300 \
      compute-sanitizer --tool "$tool" --error-exitcode 9 ./cuda_counters
    step "ep_emulator under $tool" 600 \
      compute-sanitizer --tool "$tool" --error-exitcode 9 \
      ./ep_emulator --tokens 64 --rounds 2 --warm-up 2 --windows 1 --phases baseline \
      --dispatch-bytes 256 --combine-bytes 128 --any-diagnosis
  done
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
