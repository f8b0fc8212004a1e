#!/bin/sh
# The runner itself: every way a test can end is counted as what it is, and a failure is never lost.
# timeout: 60
. tests/lint/common

place=$(mktemp -d) || exit 2
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/tests/integration" "$place/tests/unit" "$place/build/tests/unit"
cp tests/run "$place/tests/"

script() {
    printf '#!/bin/sh\n%s\n' "$2" >"$place/tests/integration/$1.sh"
    chmod +x "$place/tests/integration/$1.sh"
}

run() { B=$place/build SECRET=kept CUSLICE_WEIGHT=5 SIMCUDA_TAG=x "$place/tests/run" "$@" 2>&1; }

# expect WHAT PATTERN: the output has a line like this.
expect() {
    echo "$output" | grep -qE "$2" && return 0
    echo "$1: no line like '$2' in:"
    echo "$output"
    found=1
}

script passes 'exit 0'
script skips 'echo no such thing here; exit 77'
output=$(run)
expect 'a good run' '^ok .*integration/passes\.sh$'
expect 'a skip gives its reason' '^skip .*integration/skips\.sh +no such thing here$'
[ "$(echo "$output" | tail -n 1)" = '1 passed, 0 failed, 1 skipped' ] || check 'last line' echo "$output"
run >/dev/null || check 'status of a good run' echo $?

script fails 'echo the reason; exit 3'
script hangs '# timeout: 1
sleep 300 & echo $! >"$REPO/pid"; sleep 300'
script leaves 'sleep 300 & echo $! >"$REPO/left"'
script dies 'kill -9 $$'
script clean '[ -z "$CUSLICE_WEIGHT$SIMCUDA_TAG" ] && [ "$SECRET" = kept ] && [ -d "$CUSLICE_DIR" ] &&
    [ -z "$(ls -A "$SIMCUDA_DIR")" ] && echo "$CUSLICE_DIR" >"$REPO/dir"'
echo 'int main;' >"$place/tests/unit/test_unbuilt.c"
output=$(run)
expect 'a failure' '^FAIL .*integration/fails\.sh +exit 3$'
expect 'a failure shows its output' '^    \| the reason$'
expect 'a hang' '^FAIL .*integration/hangs\.sh +no end within 1 s$'
expect 'a signal' '^FAIL .*integration/dies\.sh +signal 9$'
expect 'an unbuilt program' '^FAIL .*unit/test_unbuilt '
expect 'its own surroundings' '^ok .*integration/clean\.sh$'
[ "$(echo "$output" | tail -n 1)" = '3 passed, 4 failed, 1 skipped' ] || check 'last line' echo "$output"
run >/dev/null && check 'status of a bad run' echo 0
# Ended is enough: who collects an orphan, and when, is not the runner's doing.
running() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }
sleep 0.2
for pid in "$place/pid" "$place/left"; do
    running "$(cat "$pid")" && check 'still running' cat "$pid"
done
[ -e "$(cat "$place/dir")" ] && check 'not removed' cat "$place/dir"
output=$(run passes)
[ "$(echo "$output" | tail -n 1)" = '1 passed, 0 failed, 0 skipped' ] || check 'filter' echo "$output"

# In turn by their timeouts; in the room multi alone at the end, whatever those say that do not go beside.
rm "$place"/tests/*/*
mkdir "$place/tests/multi"
script short 'exit 0'
script long '# timeout: 90'
script ../multi/alone '# timeout: 200'
script ../multi/beside '# timeout: 99, beside others'
output=$(run | sed -n 's/^ok .* s  //p' | tr '\n' ' ')
[ "$output" = 'multi/beside.sh integration/long.sh integration/short.sh multi/alone.sh ' ] ||
    check 'the order' echo "$output"
script ../multi/second '# timeout: 9, beside one
echo begun > '"$place"'/begun; sleep 0.3; rm '"$place"'/begun'
script ../multi/alone '# timeout: 200
sleep 0.1; test -e '"$place"'/begun'
script ../multi/last 'test ! -e '"$place"'/begun || sleep 0.5'
output=$(run -j 2 multi | tail -n 1)
[ "$output" = '4 passed, 0 failed, 0 skipped' ] || check 'beside one' run -j 2 multi
script ../multi/once 'test -e "$REPO/tried" || { touch "$REPO/tried"; exit 1; }'
script ../multi/never 'exit 1'
output=$(run once never)
[ "$(echo "$output" | tail -n 1)" = '1 passed, 1 failed, 0 skipped' ] || check 'once more' echo "$output"
[ "$(echo "$output" | grep -c '^FAIL')" = 3 ] || check 'each failure is shown' echo "$output"
run nothing-like-this >/dev/null && check 'a filter that matches nothing' echo 0
finish
