#!/usr/bin/env bash
# Runs the GPU tests, benches and examples that lie beside this script, on a machine that needs a
# CUDA driver, NVRTC and NCCL, and no Rust. Prints "N passed, N failed" last.
#
#   run.sh [--budget SECONDS] [--out FOLDER] [--leaks SECONDS] [--skip WORD] [WORD...]
#
# WORD: only the steps whose names hold one of the words. --skip: not those that hold this one.
# --budget: a step that does not end in this time is cut off or not begun, and counts as not run.
# --leaks: the start and stop test runs so long on the last GPU beside the other steps; the step
# `leaks-end` waits for it, in a second run of this script too. Steps named `quiet` measure and want
# both GPUs for themselves. Every step has its log in the folder (./out). What needs a program that
# is not there says that it was skipped.
cd "$(dirname "$0")" || exit 1
budget=100000 out=$PWD/out leaks=0 skip=' ' words=
while [ $# -gt 0 ]; do
  case $1 in
    --budget) budget=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --leaks) leaks=$2; shift 2 ;;
    --skip) skip=$2; shift 2 ;;
    -*) echo "unknown option $1"; exit 2 ;;
    *) words="$words $1"; shift ;;
  esac
done
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
# NVLink multicast stays off: hosts share it.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
passed=0 failed=0 not_run=

wanted() { # name
  local word
  case $1 in *"$skip"*) return 1 ;; esac
  [ -z "$words" ] && return 0
  for word in $words; do case $1 in *"$word"*) return 0 ;; esac; done
  return 1
}

judge() { # name, exit code, seconds
  if [ "$2" = 0 ]; then
    passed=$((passed + 1))
    echo "== $1: ok, $3 s"
  else
    failed=$((failed + 1))
    echo "== $1: FAILED ($2), $3 s"
    tail -n 15 "$out/$1.log"
  fi
  grep -hE '^(figure|skipped|overhead|ncclAllReduce|  +time:)|ERROR SUMMARY|RACECHECK SUMMARY|^[0-9]+ passed|\.\.\. FAILED' \
    "$out/$1.log" | sed 's/^/   /'
}

# Seconds that a step may take, at most $1; nothing when too little is left to begin.
limit() {
  local left=$((budget - SECONDS))
  [ "$left" -lt $(($1 / 4)) ] && return 1
  echo $((left < $1 ? left : $1))
}

step() { # name, seconds, command...
  local name=$1 seconds start=$SECONDS ended
  wanted "$name" || return 0
  seconds=$(limit "$2") || { not_run="$not_run $name"; return 0; }
  local whole=$2
  shift 2
  timeout -k 5 "$seconds" "$@" >"$out/$name.log" 2>&1 </dev/null
  ended=$?
  if [ "$ended" = 124 ] && [ "$seconds" -lt "$whole" ]; then not_run="$not_run $name"; return 0; fi
  judge "$name" "$ended" $((SECONDS - start))
}

# Errors in the log of a sanitizer, without two kinds that are NCCL's own: calls of the CUDA runtime
# that fail inside it (it asks for peer access twice), and reads of memory that another GPU has written,
# which initcheck does not see, in its kernels. What its kernels read or write out of bounds counts.
ours() { # log
  awk '
    function end() {
      if (error != "" && !(error ~ /Program hit/ && error ~ /libnccl/) &&
          !(error ~ /Uninitialized __global__/ && error ~ /ncclDevKernel/)) count++
      error = ""
    }
    /^========= +(ERROR SUMMARY|RACECHECK SUMMARY|COMPUTE-SANITIZER|LEAK SUMMARY)/ { end(); next }
    /^========= [A-Z]/ { end() }
    /^=========/ { error = error $0 }
    END { end(); print count + 0 }' "$1"
}

# A command under several tools of compute-sanitizer at once: name, seconds, GPUs, tools, command...
# The tool decides, not what the command finds, which runs many times slower.
sanitized() {
  local name=$1 seconds=$2 visible=$3 tools=$4 tool start=$SECONDS
  shift 4
  wanted "sanitizer-$name" || return 0
  command -v compute-sanitizer >/dev/null || { echo "skipped: $name: no compute-sanitizer"; return 0; }
  seconds=$(limit "$seconds") || { not_run="$not_run sanitizer-$name"; return 0; }
  for tool in $tools; do
    (
      [ "$visible" = all ] || export CUDA_VISIBLE_DEVICES=$visible
      log=$out/sanitizer-$name-$tool.log
      timeout -k 5 "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 100000 \
        "$@" >"$log" 2>&1 </dev/null
      ended=$?
      if [ "$ended" = 9 ]; then
        found=$(ours "$log")
        echo "figure: $found errors besides those of NCCL itself" >>"$log"
        [ "$found" = 0 ] && ended=0
      fi
      echo "$ended" >"$out/sanitizer-$name-$tool.rc"
    ) &
  done
  for tool in $tools; do
    while [ ! -s "$out/sanitizer-$name-$tool.rc" ]; do sleep 0.2; done
    judge "sanitizer-$name-$tool" "$(cat "$out/sanitizer-$name-$tool.rc")" $((SECONDS - start))
  done
}

python=$(command -v python3)
torch() { [ -n "$python" ] && "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }
gpus() { if command -v nvidia-smi >/dev/null; then nvidia-smi -L 2>/dev/null | grep -c '^GPU'; else echo 0; fi; }

chmod +x gpu gpu_mpi diagnose cuda_counters ep_emulator probe_bench 2>/dev/null
rm -f "$out"/sanitizer-*.rc
count=$(gpus)
echo "$count GPUs, $(nproc --all) cores"

if [ "$leaks" -gt 0 ]; then
  rm -f "$out/leaks-end.rc"
  # In a session of its own, so that it outlives this script.
  setsid bash -c '
    echo $$ >"$3/leaks-end.pid"
    ./diagnose starting_and_stopping --seconds "$1" --device "$2" >"$3/leaks-end.log" 2>&1
    echo $? >"$3/leaks-end.rc"
  ' leaks "$leaks" "$((count > 0 ? count - 1 : 0))" "$out" </dev/null >/dev/null 2>&1 &
  # Its first figures are taken before anybody else is on its GPU.
  sleep 8
fi
leaks_end() {
  wanted leaks-end && [ -e "$out/leaks-end.pid" ] || return 0
  while [ ! -e "$out/leaks-end.rc" ] && [ "$SECONDS" -lt "$budget" ] &&
    kill -0 "$(cat "$out/leaks-end.pid")" 2>/dev/null; do sleep 1; done
  sleep 1
  if [ -e "$out/leaks-end.rc" ]; then
    judge leaks-end "$(cat "$out/leaks-end.rc")" "$SECONDS"
    rm -f "$out/leaks-end.pid"
  elif [ "$SECONDS" -ge "$budget" ]; then
    not_run="$not_run leaks-end(still-runs)"
    tail -n 2 "$out/leaks-end.log"
  else
    judge leaks-end killed "$SECONDS"
  fi
}

# What needs two quiet GPUs, and quiet cores.
step quiet-probe-cost 90 env DEEPXTRACE_BENCH_STUBS="$PWD/stubs" ./probe_bench --bench
[ "$leaks" -gt 0 ] || leaks_end
if wanted quiet-overhead; then
  if [ "$count" -ge 2 ] && torch; then
    probed() { # folder, more variables...
      local trace=$out/$1; shift
      rm -rf "$trace"
      env LD_PRELOAD="$PWD/libdeepxtrace_nccl_probe.so" DEEPXTRACE_TRACE_DIR="$trace" \
        DEEPXTRACE_RUN_ID=overhead "$@" "$python" launch.py 110 overhead.py
      local ended=$?
      echo "figure: dropped events in $trace: $(tail -qn 1 "$trace"/*.jsonl |
        grep -o '"dropped_events":[0-9]*' | sort | uniq -c | tr -s ' \n' ' ')"
      rm -rf "$trace"
      return $ended
    }
    export -f probed
    export out python
    step quiet-overhead 120 bash -c 'probed overhead-trace A=1'
    step quiet-overhead-without-query 60 bash -c \
      'probed overhead-trace DEEPXTRACE_CAPTURE_QUERY=0 SIZES="8 1048576"'
  else
    echo "skipped: quiet-overhead: it needs two GPUs and PyTorch"
  fi
fi
step quiet-ep-emulator 90 ./ep_emulator
step quiet-cost 60 ./gpu enqueue step

# Tests. Those of one GPU use the first.
step gpu 240 env DEEPXTRACE_GPU_LEAK_SECONDS=10 ./gpu
if [ -e gpu_mpi ] && command -v mpirun >/dev/null; then
  step gpu-mpi 90 mpirun --allow-run-as-root --oversubscribe -n 2 ./gpu_mpi
else
  wanted gpu-mpi && echo "skipped: gpu-mpi: no mpirun"
fi
step diagnose 120 ./diagnose --seconds 10
step cuda-counters 60 ./cuda_counters
step cuda-counters-nccl 60 ./cuda_counters nccl
if wanted pytorch; then
  if [ "$count" -ge 1 ] && torch; then
    step pytorch-stream 60 "$python" borrowed_stream.py ./libborrowed_stream.so "$out"
    [ "$count" -ge 2 ] && step pytorch-stream-and-communicator 60 "$python" launch.py 50 \
      borrowed_stream.py ./libborrowed_stream.so "$out"
  else
    echo "skipped: pytorch-stream: it needs a GPU and PyTorch"
  fi
fi

# Groups of several kinds at once; the traces are for `deepxtrace nccl analyze`.
parallel() { # shape, name
  local trace=$out/traces/parallel-$2-$1 ranks=$((${1//x/ * }))
  rm -rf "$trace"
  SHAPE=$1 RANKS=$ranks LD_PRELOAD="$PWD/libdeepxtrace_nccl_probe.so" \
    DEEPXTRACE_TRACE_DIR="$trace" DEEPXTRACE_RUN_ID="parallel-$2-$1" DEEPXTRACE_HEARTBEAT_S=2 \
    "$python" launch.py 45 parallel.py "$2"
}
all_parallel() {
  local case jobs=
  for case in "$@"; do parallel ${case/:/ } & jobs="$jobs $!"; done
  local job ended=0
  for job in $jobs; do wait "$job" || ended=1; done
  return $ended
}
if wanted pytorch-parallel; then
  export -f parallel all_parallel
  export out python
  case $count in
    0 | 1) echo "skipped: pytorch-parallel: it needs two GPUs at least" ;;
    8) shapes='2x2x2:healthy 2x2x2:mismatch 2x2x2:missing 2x2x2:wrong_peer' ;;
    4) shapes='2x1x2:healthy 2x1x2:mismatch 2x1x2:missing 2x2x1:wrong_peer' ;;
    *) shapes='1x2x1:healthy 2x1x1:mismatch 1x1x2:missing' ;;
  esac
  if [ "$count" -ge 2 ] && torch; then
    step pytorch-parallel 75 bash -c 'all_parallel "$@"' all $shapes
  fi
fi

# The examples under compute-sanitizer. Racecheck looks at shared memory.
sanitized cuda-counters 150 0 "memcheck initcheck synccheck racecheck" ./cuda_counters \
  --any-diagnosis
sanitized low-latency 150 0 "memcheck initcheck synccheck racecheck" ./diagnose \
  _synchronous_low_latency --any-diagnosis
sanitized cuda-counters-nccl 150 all "memcheck initcheck synccheck" ./cuda_counters nccl \
  --any-diagnosis
sanitized ep-emulator 200 0 "memcheck initcheck synccheck racecheck" \
  ./ep_emulator --tokens 64 --rounds 2 --warm-up 2 --windows 1 --phases baseline \
  --dispatch-bytes 256 --combine-bytes 128 --any-diagnosis

[ "$leaks" -gt 0 ] && leaks_end
[ -n "$not_run" ] && echo "not run, for want of time:$not_run"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
