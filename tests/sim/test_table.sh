#!/bin/sh
# Every conformance program stands in the table of tests/sim/README.md, which names no other.
set -u
cd "$REPO/tests/sim" || exit 1
ls conformance/*.c | sed 's,.*/,,; s,\.c$,,' | sort > "$TMPDIR/programs"
sed -n 's/^|.*| `\([a-z0-9_]*\)` | [a-z].* |$/\1/p' README.md | sort > "$TMPDIR/table"
if diff "$TMPDIR/programs" "$TMPDIR/table"; then
    echo "ok: $(wc -l < "$TMPDIR/table") programs, each in the table"
else
    echo "FAILED: < has a program and no row, > has a row and no program (or two rows)"
    exit 1
fi
