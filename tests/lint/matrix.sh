#!/bin/sh
# hooks/MATRIX.md has exactly the functions of hooks.def, in their order, and no cell untested. Whether what it says
# is true, tests/integration/test_doors_matrix.py finds out. The check is then shown to fail.
. tests/lint/common

place=$(mktemp -d) || exit 2
trap 'rm -rf "$place"' EXIT

# stale HOOKS MATRIX: what differs.
stale() {
    sed -nE '/^USE\(/d; s/^[A-Z_]+\((cu[A-Za-z0-9_]+).*/\1/p' "$1" >"$place/rows"
    sed -nE 's/^\| `(cu[A-Za-z0-9_]+)` \|.*/\1/p' "$2" >"$place/lines"
    diff "$place/rows" "$place/lines" | sed -n 's/^</not in the matrix:/p; s/^>/not in hooks.def here:/p'
    cells=$(sed -n 's/^| function |\(.*\)/\1/p' "$2" | tr -cd '|' | wc -c)
    awk -F'|' -v cells="$cells" '/^\| `cu/ {
        if (NF != cells + 3) print $2 "has " NF - 3 " cells, not " cells
        for (i = 3; i < NF; i++) if ($i !~ /^ [hd-] $/) print $2 "has an untested cell"
    }' "$2"
}

self_test() {
    printf 'GATE(cuOne, s)\nFREE(cuTwo, p)\n' >"$place/h"
    printf '| function | 1 | 2 |\n|---|---|---|\n| `cuOne` | h | d |\n| `cuTwo` | - | h |\n' >"$place/m"
    check 'a fresh matrix' stale "$place/h" "$place/m"
    for edit in 's/cuTwo/cuThree/' '/cuTwo/d' 's/| - |/| untested |/' 's/ h | d / h /'; do
        sed "$edit" "$place/m" >"$place/bad"
        [ -n "$(stale "$place/h" "$place/bad")" ] || check 'the check itself cannot fail' echo "$edit"
    done
}

check 'hooks/MATRIX.md' stale hooks/hooks.def hooks/MATRIX.md
self_test
finish
