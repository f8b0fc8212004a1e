# Several clients on one device; part of tests/gpu/run. Each check is a function that prints one
# line and returns 0, 1 or 77; it works in $PLACE/ring, which is fresh, and ends what it starts.

SHARING_CHECKS="sharing/alone sharing/equal sharing/weights sharing/killed sharing/stopped
    sharing/cap sharing/contended"
BURN=$B/tests/gpu/burn

# burn NAME SECONDS [SETTING=VALUE...]: starts a client in the background that waits for
# $PLACE/start; its output goes to $PLACE/burn.NAME, its process id to BURN_PID.
burn() {
    burn_name=$1 seconds=$2
    shift 2
    {
        exec env LD_PRELOAD="$PRELOAD" CUSLICE_DIR="$PLACE/ring" CUSLICE_TENANT="$burn_name" "$@" \
            "$BURN" 1 "$seconds" "$PLACE/start"
    } > "$PLACE/burn.$burn_name" 2>&1 &
    BURN_PID=$!
}

# The kernels that a burn ran within its time; nothing when it failed.
burn_kernels() {
    sed -n 's/^\([0-9]*\) kernels$/\1/p' "$PLACE/burn.$1"
}

# compare WHAT VALUE LOW HIGH: 0 when LOW <= VALUE <= HIGH.
compare() {
    awk -v v="$2" -v l="$3" -v h="$4" -v w="$1" 'BEGIN {
        ok = v != "" && v >= l && v <= h
        printf "%s: %s %s (%s to %s)\n", ok ? "ok" : "FAILED", w, v, l, h
        exit !ok
    }'
}

# share A B: A's part of the kernels of both, in percent.
share() {
    awk -v a="$(burn_kernels "$1")" -v b="$(burn_kernels "$2")" \
        'BEGIN { if (a + b) printf "%.2f", 100 * a / (a + b) }'
}

sharing_alone() {
    "$BURN" 1 4 > "$PLACE/burn.bare" 2>&1 || { cat "$PLACE/burn.bare"; return 1; }
    preloaded "$BURN" 1 4 > "$PLACE/burn.alone" 2>&1 || { cat "$PLACE/burn.alone"; return 1; }
    compare "percent of the bare program's kernels" \
        "$(awk -v a="$(burn_kernels alone)" -v b="$(burn_kernels bare)" \
            'BEGIN { if (b) printf "%.1f", 100 * a / b }')" 97 103
}

# sharing_pair WEIGHT_A WEIGHT_B LOW HIGH
sharing_pair() {
    burn a 8 CUSLICE_WEIGHT="$1"; first=$BURN_PID
    burn b 8 CUSLICE_WEIGHT="$2"; second=$BURN_PID
    sleep 3
    touch "$PLACE/start"
    wait "$first" && wait "$second" || { cat "$PLACE/burn.a" "$PLACE/burn.b"; return 1; }
    compare "percent of the kernels at weights $1 and $2" "$(share a b)" "$3" "$4"
}

sharing_equal() { sharing_pair 100 100 48 52; }
sharing_weights() { sharing_pair 300 100 72 78; }

# A client killed in the middle of its turn holds nobody up: the other one gets all of the rest.
sharing_killed() {
    burn a 20; first=$BURN_PID
    burn b 8; second=$BURN_PID
    sleep 3
    touch "$PLACE/start"
    sleep 2
    kill -KILL "$first"
    wait "$second" || { cat "$PLACE/burn.b"; return 1; }
    compare "kernels of the one that stayed, of 8000 ms" "$(burn_kernels b)" 5500 8000
}

# A client stopped in the middle of its turn is gone past after its allowance.
sharing_stopped() {
    burn a 8; first=$BURN_PID
    burn b 8; second=$BURN_PID
    sleep 3
    touch "$PLACE/start"
    sleep 2
    kill -STOP "$first"
    sleep 4
    kill -CONT "$first"
    wait "$second" || { cat "$PLACE/burn.b"; return 1; }
    wait "$first" || { cat "$PLACE/burn.a"; return 1; }
    compare "kernels of the one that was not stopped, of 8000 ms" "$(burn_kernels b)" 4000 8000
}

sharing_cap() {
    preloaded CUSLICE_MEM_LIMIT=2Gi "$B/tests/sim/conformance/memory_exhausted"
}

# The programs that a bounded run-ahead, a closed gate or a marker could break, beside a rival.
sharing_contended() {
    burn rival 200; rival=$BURN_PID
    ONE_LIMIT=15
    touch "$PLACE/start"
    bad=0 good=0
    for name in host_flag stream_value stream_legacy stream_order event_context host_function \
        capture_global capture_records capture_errors graph_order graph_update ipc_event; do
        preloaded CUSLICE_TENANT=guest "$B/tests/sim/conformance/$name" > "$PLACE/contended" 2>&1
        status=$?
        if [ $status = 0 ]; then
            good=$((good + 1))
        else
            bad=$((bad + 1))
            echo "$name beside a rival: exit $status"
            cat "$PLACE/contended"
        fi
    done
    kill -TERM "$rival"
    wait "$rival"
    [ $bad = 0 ] && echo "ok: $good programs ran as they do alone"
}

sharing_check() {
    for part in $SHARING_CHECKS; do
        wanted "$part" || continue
        if [ ! -f "$PRELOAD" ]; then
            count skip "$part" "there is no $PRELOAD"
            continue
        fi
        check "$part" "sharing_${part#sharing/}"
    done
}
