#!/usr/bin/env bash
# Records every scenario on two GPUs: record.sh OUT. BIN names the folder of the built programs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=${BIN:-$here}
out=$1
mkdir -p "$out"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export DEEPXTRACE_HEARTBEAT_S=2 HANG_S=8 OMP_NUM_THREADS=2

# record NAME: one scenario to its end, at most 45 s. The hang lasts 8 s, the timeouts are 3 s.
record() {
  local name=$1 start=$SECONDS more=
  [ "$name" = handle ] && more=--wrap-dlsym
  timeout -k 3 45 "$bin/deepxtrace" nccl run --out "$out" --run-id "real-$name" \
    --collective-timeout-s 3 --scan-interval-s 1 $more -- \
    python3 "$here/launch.py" 35 "$here/scenario.py" "$name" >"$out/$name.log" 2>&1
  echo "$name rc=$? $((SECONDS - start)) s: $(tail -n 1 "$out/$name.log")"
}

names=${NAMES:-healthy split api count datatype root reduction missing delayed skipped extra \
  opposite loader lone_send p2p_count premul graph killed shim handle}
running=0
for name in $names; do
  record "$name" &
  running=$((running + 1))
  [ $((running % ${PARALLEL:-4})) = 0 ] && wait
done
wait
