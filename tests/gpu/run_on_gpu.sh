#!/usr/bin/env bash
# Everything that needs a CUDA device, on a machine without a network: plain python3, no nox, nothing installed.
#
#   tests/gpu/run_on_gpu.sh [FOLDER] [PART …]
#
# FOLDER (default $OUT, else ./gpu-results) receives one readable file per part and `summary.txt`. Each part has its own
# time limit, so that one that hangs or fails hides no other; all together stay below nine minutes.
set -uo pipefail
cd "$(dirname "$0")/../.."
results="${1:-${OUT:-gpu-results}}"
shift || true
mkdir -p "$results"
results="$(cd "$results" && pwd)"
python="${PYTHON:-python3}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
PYTHONPATH="$("$python" tests/gpu/site_packages.py "$scratch/site")${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH PYTHONPYCACHEPREFIX="$scratch/bytecode" QUERNEL_ENVIRONMENT="$scratch/environment"
cores="$(nproc)"
workers=$((cores > 12 ? 12 : cores))
summary="$results/summary.txt"
: > "$summary"
wanted=("$@")

part() { # NAME SECONDS COMMAND …
    local name="$1" limit="$2" started status
    shift 2
    if ((${#wanted[@]})) && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
    started=$(date +%s)
    timeout --kill-after=5 "$limit" "$@" > "$results/$name.txt" 2>&1 < /dev/null
    status=$?
    local verdict="exit $status"
    ((status == 0)) && verdict="ok"
    ((status == 124 || status == 137)) && verdict="stopped after $limit s"
    printf '%-14s %-22s %4d s   %s\n' "$name" "$verdict" "$(($(date +%s) - started))" \
        "$(grep -v '^ *$' "$results/$name.txt" | tail -n 1 | cut -c1-150)" | tee -a "$summary"
}

pytest=("$python" -m pytest -q -p no:cacheprovider --timeout=120 -rfE --tb=short)
part machine 30 "$python" tests/gpu/machine.py
part cuda_only 90 "${pytest[@]}" tests/gpu
part launch_cost 40 "$python" tests/benchmarks/cuda_launch.py
part throughput 75 "$python" tests/benchmarks/cuda_throughput.py
part start 50 "$python" tests/benchmarks/cuda_start.py
part peers 30 "$python" tests/benchmarks/cuda_peers.py
part batch 40 "$python" tests/benchmarks/cuda_batch.py
part kit 100 "${pytest[@]}" -n "$workers" --quernel-backend cuda --quernel-whole tests/conformance
part random 50 "$python" -m quernel.testing.fuzz --backend cuda --examples 2000 --workers "$workers" --seed 1 \
    --keep "$results/found"
sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)"
if [[ -n "$sanitizer" ]]; then
    # Of calls that the driver refuses it reports cuda-python's own, which ask for symbols that the driver lacks.
    part sanitizer 55 "$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 9 \
        "$python" -m pytest -q -p no:cacheprovider --timeout=60 -m "not lost and not slow" tests/gpu/test_kernels.py
else
    echo "sanitizer      not run: compute-sanitizer is not installed" | tee -a "$summary"
fi
! grep -qE 'exit [1-9]|stopped' "$summary"
