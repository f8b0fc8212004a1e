#!/bin/sh
# The test kernels assemble for the oldest and the newest targets that the toolkit at hand knows.
set -u
ptxas=$(command -v ptxas || echo "${CUDA_HOME:-/usr/local/cuda}/bin/ptxas")
[ -x "$ptxas" ] || { echo "skipped: no ptxas"; exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
assemble() {
    "$ptxas" -arch="$2" -o "$place/out" "$REPO/tests/kernels/$1" || {
        echo "FAILED: $1 does not assemble for $2"
        failed=1
    }
}
assemble kernels.ptx sm_75
assemble kernels.ptx sm_90
assemble pdl.ptx sm_90
[ $failed = 0 ] && echo "ok: the kernels assemble for sm_75 and sm_90"
exit $failed
