#!/bin/sh
# The tool's exit codes and where its words go: help on standard output with 0, mistakes on standard
# error with 2, a full disk with 1.
set -u
tool=$B/cuslice
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE STREAM WORDS ARGUMENTS...: the words must be in that stream, the other must be empty
expect() {
    code=$1 stream=$2 words=$3
    shift 3
    "$tool" "$@" >"$TMPDIR/out" 2>"$TMPDIR/err"
    got=$?
    other=out
    [ "$stream" = out ] && other=err
    [ $got -eq "$code" ] || fail "cuslice $*: exit $got, not $code"
    grep -q -e "$words" "$TMPDIR/$stream" || fail "cuslice $*: no '$words' in: $(cat "$TMPDIR/$stream")"
    [ ! -s "$TMPDIR/$other" ] || fail "cuslice $*: also said: $(cat "$TMPDIR/$other")"
}

expect 0 out 'Commands:' --help
expect 0 out 'Commands:' help
expect 0 out 'usage: cuslice run' help run
expect 2 err 'usage:'
expect 2 err "unknown command 'frobnicate'" frobnicate
expect 2 err "unknown command 'frobnicate'" help frobnicate
for command in run status set reap hooks config version; do
    expect 0 out "usage: cuslice $command" $command --help
    expect 0 out "usage: cuslice $command" $command -h
    "$tool" --help | grep -q "^  $command " || fail "$command is not listed by --help"
done
expect 0 out 'layout [0-9]' version
expect 0 out 'layout [0-9]' --version
expect 2 err "takes no arguments" version extra
expect 2 err "takes no arguments" status extra
expect 2 err "takes no arguments" config extra
expect 2 err "needs a value" status --dir
expect 2 err "unknown.*'--wat'" status --wat
expect 2 err "unknown option '-z'" status -z
expect 2 err "unknown.*'--wat'" config --wat
expect 2 err "no program given" run
expect 2 err "no program given" run --weight 5 --
expect 2 err "unknown.*'--wat'" run --wat true
expect 2 err "needs a value" run --mem
expect 2 err "'12 apples' is not bytes" run --mem '12 apples' true
expect 2 err "'-1' is not bytes" run --process-mem=-1 true
expect 2 err "'0' is not a whole number from 1 to 10000" run --weight 0 true
expect 2 err "is not a duration (500us, 20ms, 1.5s; a bare number is ms) from 1ms to 10s" run --quantum 11s true
expect 2 err "is not one of enforce, observe, off" run --mode hard true
expect 2 err "is not 1 to 63 printable" run --tenant '' true
expect 2 err "nothing to set" set
expect 2 err "nothing to set" set --tenant a
expect 2 err "say whose with --tenant" set --mem 4Gi
expect 2 err "give it without --tenant" set --tenant a --quantum 5ms
expect 2 err "'mem' is given twice" set --tenant a --mem 1 --unset mem
expect 2 err "'colour' is no setting" set --tenant a --unset colour
expect 2 err "'heavy' is not a whole number from 1 to 10000, or default" set --tenant a --weight heavy
expect 2 err "'11s' is not a duration .* from 1ms to 10s" set --quantum 11s
expect 2 err "'49ms' is not a duration .* from 50ms to 60s" set --allowance 49ms
for cap in abc -1 '12 apples' 1e3 4Gi, 0:4Gi,0:5Gi '' ' ' %; do
    expect 2 err "'$cap' is not bytes, 4Gi, 4096m, 25%, auto, none" set --tenant a "--mem=$cap"
    expect 2 err "'$cap' is not bytes, 4Gi, 4096m, 25%, auto, none" set --tenant a "--process-mem=$cap"
done
expect 2 err "'auto' needs CUSLICE_REPLICAS" set --tenant a --mem auto
expect 2 err "needs a value" set --mem
expect 2 err "unknown.*'--wat'" set --wat 1
expect 2 err "takes no arguments" set --quantum 5ms extra
expect 2 err "takes no arguments" reap extra
expect 1 err "no ring in" set --quantum 5ms
expect 1 err "no ring in" set --tenant a --mem 4Gi
expect 1 err "no ring in" reap
expect 2 err "no class 'GHOST'" hooks GHOST
expect 2 err "unknown.*'--wat'" hooks --wat
expect 0 out '^GATE *cuLaunchKernel$' hooks
expect 0 out '^CHARGE *cuMemAlloc_v2$' hooks charge

# The list is what the library exports, no more and no less.
if command -v nm >/dev/null; then
    "$tool" hooks | awk '{ print $2 }' | grep '^cu' | sort >"$TMPDIR/listed"
    nm -D --defined-only "$CUSLICE_SO" | awk '{ print $3 }' | grep '^cu[A-Z]' | sort >"$TMPDIR/exported"
    cmp -s "$TMPDIR/listed" "$TMPDIR/exported" ||
        fail "hooks and exports differ: $(diff "$TMPDIR/listed" "$TMPDIR/exported" | head -5)"
fi

version=$(sed -n 's/^#define CUSLICE_VERSION "\(.*\)"/\1/p' "$REPO/include/cuslice/version.h")
"$tool" version | grep -qx "cuslice $version" || fail "version says $("$tool" version)"

if [ -c /dev/full ]; then
    for command in help config 'config --json' 'status --json'; do
        "$tool" $command >/dev/full 2>"$TMPDIR/err"
        [ $? -eq 1 ] || fail "cuslice $command with a full disk: exit $?"
        grep -q 'cannot write' "$TMPDIR/err" || fail "cuslice $command: a full disk is not told"
    done
fi

[ $failures -eq 0 ] && echo "all as described"
[ $failures -eq 0 ]
