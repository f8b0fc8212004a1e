#!/bin/sh
# The benchmarks on a real GPU: launches, hand-over, shares and throughput with real kernels, timed
# by the GPU's own clock. Takes three to four minutes; use a GPU that nobody else uses meanwhile.
#
#   bench/gpu.sh [WORD...]     the parts of bench/run whose names contain one of the words
#
# Prints a table and writes gpu.md and gpu.json to $B/bench, with the date, the GPU and its driver.
# Exit 77 without a GPU.
set -u
REPO=$(cd "$(dirname "$0")/.." && pwd)
B=${B:-$REPO/build}
export B
LIMIT=235

for program in call_client load_client handover; do
    [ -x "$B/bench/$program" ] && continue
    make -C "$REPO" B="$B" all "$B/bench/call_client" "$B/bench/load_client" "$B/bench/handover" ||
        exit 1
    break
done

describe() {
    nvidia-smi --query-gpu=name,driver_version,compute_mode,mig.mode.current --format=csv,noheader \
        2> /dev/null | head -n 1 && return
    head -n 1 /proc/driver/nvidia/version 2> /dev/null
}

device=$(describe)
if [ -z "$device" ]; then
    echo 'skipped: no nvidia-smi and no /proc/driver/nvidia: there is no GPU here'
    exit 77
fi
timeout -k 5 $LIMIT "$REPO/bench/run" --gpu --device "$device" "$@"
status=$?
if [ $status = 124 ]; then
    echo "stopped after $LIMIT s; what was measured until then:"
    cat "$B/bench/gpu.md"
fi
exit $status
