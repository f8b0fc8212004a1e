#!/bin/sh
# Every symbol of the driver is decided, once: a row of hooks/hooks.def, or a line with its reason in
# hooks/passthrough.txt. A symbol that a newer toolkit brings fails here until somebody decides. Compared are the
# simulated driver's list and the toolkit's own stub, where there is one. The same for the functions of NVML that tell of
# memory or processes: nvml.def, nvml_passthrough.txt. The checks are then shown to fail.
. tests/lint/common

place=$(mktemp -d) || exit 2
trap 'rm -rf "$place"' EXIT

# The names of the rows; USE is not a hook.
rows() {
    sed -nE '/^USE\(/d; s/^[A-Z_]+\(((cu|nvml)[A-Za-z0-9_]+).*/\1/p' "$1"
}

passing() { sed -nE 's/^((cu|nvml)[A-Za-z0-9_]+)[[:space:]].*/\1/p' "$1"; }

# A line without a reason decides nothing.
reasonless() { grep -vE '^(#.*|(cu|nvml)[A-Za-z0-9_]+[[:space:]]+[^[:space:]].*|)$' "$1"; }

# decide HOOKS PASSTHROUGH SYMBOLS: complaints.
decide() {
    rows "$1" | sort >"$place/rows"
    passing "$2" | sort >"$place/passing"
    sort "$place/rows" "$place/passing" >"$place/decided"
    sort -u "$3" >"$place/symbols"
    sort -u "$place/decided" | comm -13 - "$place/symbols" | sed 's/$/ is not decided/'
    uniq -d "$place/decided" | sed 's/$/ is decided twice/'
    sort -u "$place/decided" | comm -23 - "$place/symbols" | sed 's/$/ is no symbol of the driver/'
    reasonless "$2" | sed 's/$/: no reason given/'
}

# The stub of the toolkit: it may be older or newer than the list, so only what it has must be decided.
stub_undecided() {
    for stub in "${CUDA_HOME:-/usr/local/cuda}"/lib64/stubs/libcuda.so; do
        [ -f "$stub" ] || continue
        nm -D --defined-only "$stub" | sed 's/.* //; s/@.*//' | grep '^cu[A-Z]' >"$place/stub"
        decide hooks/hooks.def hooks/passthrough.txt "$place/stub" | grep 'is not decided$'
    done
}

# Functions of NVML by what their names speak of, as far as the simulated one knows them.
nvml_telling() {
    grep -ohE 'nvml[A-Z][A-Za-z0-9_]+[()]' tests/sim/nvml/refused.def tests/sim/nvml/nvml_calls.h |
        tr -d '()' | grep -E 'Memory|Process|Accounting|F[bB][A-Z]|Attributes|FieldValues'
}

# fails WHAT WORDS HOOKS PASSTHROUGH SYMBOLS: the decision must be complained of in these words.
fails() {
    decide "$3" "$4" "$5" | grep -qxF "$2" || check 'the check itself cannot fail' echo "$1"
}

self_test() {
    printf '/* GATE(cuInAComment, x) */\nGATE(cuOne, s)\nSYNC_VOID(cuTwo, d)\nUSE(cuThree)\n' >"$place/h"
    printf '# words\n\ncuThree  asks\ncuFour   asks\n' >"$place/p"
    printf 'cuOne\ncuTwo\ncuThree\ncuFour\n' >"$place/s"
    check 'a complete table' decide "$place/h" "$place/p" "$place/s"
    { cat "$place/s"; echo cuFive; } >"$place/more"
    fails 'new symbol' 'cuFive is not decided' "$place/h" "$place/p" "$place/more"
    grep -v cuTwo "$place/s" >"$place/less"
    fails 'vanished symbol' 'cuTwo is no symbol of the driver' "$place/h" "$place/p" "$place/less"
    { cat "$place/p"; echo 'cuOne  too'; } >"$place/twice"
    fails 'hooked and passed' 'cuOne is decided twice' "$place/h" "$place/twice" "$place/s"
    { cat "$place/h"; echo 'GATE(cuOne, s)'; } >"$place/again"
    fails 'hooked twice' 'cuOne is decided twice' "$place/again" "$place/p" "$place/s"
    { cat "$place/p"; echo 'cuFive '; } >"$place/bare"
    fails 'no reason' 'cuFive : no reason given' "$place/h" "$place/bare" "$place/s"
    { grep -v cuFour "$place/p"; } >"$place/lost"
    fails 'line lost' 'cuFour is not decided' "$place/h" "$place/lost" "$place/s"
}

[ "$(rows hooks/hooks.def | wc -l)" -gt 100 ] || check 'rows read from hooks.def' rows hooks/hooks.def
check 'hooks.def and passthrough.txt' decide hooks/hooks.def hooks/passthrough.txt \
    tests/sim/gen/symbols.txt
check "the toolkit's stub" stub_undecided
nvml_telling >"$place/nvml"
[ "$(wc -l <"$place/nvml")" -gt 30 ] || check 'names of NVML' cat "$place/nvml"
check 'nvml.def and nvml_passthrough.txt' decide hooks/nvml.def hooks/nvml_passthrough.txt "$place/nvml"
self_test
finish
