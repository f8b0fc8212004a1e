#!/bin/sh
# Each message id that the library can print is explained in README.md, and no other is.
. "$(dirname "$0")/common"
said=$(mktemp)
known=$(mktemp)
trap 'rm -f "$said" "$known"' EXIT
cat lib/*.c scheduler/*.c hooks/*.c | tr '\n' ' ' |
    grep -oE 'log_(error|warn|info|debug|at)\([^"]*"[a-z-]+"' | sed -E 's/.*"([a-z-]+)"/\1/' | sort -u > "$said"
sed -n '/^## What it says/,/^## How it works/p' README.md | grep -E '^\| `' | cut -d'|' -f2 |
    grep -oE '`[a-z-]+`' | tr -d '`' | sort -u > "$known"
comm -23 "$said" "$known" | sed 's/^/printed but not explained in README.md: /'
comm -13 "$said" "$known" | sed 's/^/explained in README.md but never printed: /'
cmp -s "$said" "$known"
