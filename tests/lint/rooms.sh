#!/bin/sh
# Arrows go down only: a room includes its own headers and those of the rooms below, nothing else.
. tests/lint/common

# strays ROOM BELOW...: quoted includes of ROOM's sources that lie in none of the rooms named.
strays() {
    room=$1
    for source in "$room"/*.c "$room"/*.h "$room"/*.S; do
        [ -f "$source" ] || continue
        sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\(.*\)".*/\1/p' "$source" |
            while IFS= read -r name; do
                case $name in *..*) echo "$source includes \"$name\""; continue ;; esac
                for place in "$@"; do
                    [ -f "$place/$name" ] && continue 2
                done
                # What the build generates has no place in the tree.
                [ -f "$B/gen/$name" ] || echo "$source includes \"$name\""
            done
    done
}

# naming PATTERN ROOM...: includes of a foreign header in rooms that must not know it.
naming() {
    pattern=$1
    shift
    for room in "$@"; do
        grep -HnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" \
            "$room"/*.c "$room"/*.h "$room"/*.def 2>/dev/null
    done
}

check 'include must depend on nothing' strays include/cuslice include
check 'not below lib' strays lib include
check 'not below scheduler' strays scheduler lib include
check 'not below hooks' strays hooks scheduler lib include
check 'not below ctl' strays scheduler/ctl scheduler lib include
check 'only hooks knows CUDA' naming 'cuda.*\.h|nvml\.h' include/cuslice lib scheduler scheduler/ctl
check 'only the tool knows cJSON' naming 'cjson/.*|cJSON\.h' include/cuslice lib scheduler hooks
check 'tests must not use the sources of the product' naming '.*/(lib|scheduler|hooks)/.*\.c' \
    tests/unit tests/integration tests/multi
finish
