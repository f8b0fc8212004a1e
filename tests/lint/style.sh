#!/bin/sh
# The house rules that a machine can read: width, length of functions, no left-overs, no machine's paths.
. tests/lint/common

sources() {
    find include lib scheduler hooks tests examples bench -name '*.[chS]' -o -name '*.def' 2>/dev/null |
        sort
}

# Wider than 100 columns; characters, not bytes.
wide() {
    # shellcheck disable=SC2046
    LC_ALL=C.UTF-8 awk 'length > 100 { print FILENAME ":" FNR }' $(sources)
}

# With this layout a function begins at "{" and ends at "}" in the first column.
long_functions() {
    # shellcheck disable=SC2046
    awk 'FNR == 1 { start = 0 }
         /^\{/ { start = FNR }
         /^}/ && start { if (FNR - start - 1 > 60) print FILENAME ":" start, FNR - start - 1, "lines"
                         start = 0 }' $(sources)
}

left_overs() {
    # shellcheck disable=SC2046
    grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $(sources)
}

# Every product source says at its head what it is.
headless() {
    for source in lib/*.[ch] scheduler/*.[ch] scheduler/ctl/*.[ch] hooks/*.[ch] include/cuslice/*.h; do
        [ -f "$source" ] || continue
        head -n 1 "$source" | grep -q '^/\*' || echo "$source"
    done
}

tabs() {
    # shellcheck disable=SC2046
    grep -nP '^ *\t' $(sources | grep '\.[ch]$')
}

declared_in_c() {
    grep -nE '^[[:space:]]*extern\b' lib/*.c scheduler/*.c scheduler/ctl/*.c hooks/*.c 2>/dev/null
}

check 'wider than 100 columns' wide
check 'longer than 60 lines' long_functions
check 'left over' left_overs
check 'no head comment' headless
check 'tab' tabs
check 'extern in a source file' declared_in_c
finish
