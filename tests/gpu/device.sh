# Finds the device and records what it is; part of tests/gpu/run.

DEVICE_REASON=

# device_simulate: has the checks run on the simulated device, each on a fresh one.
device_simulate() {
    LD_LIBRARY_PATH=$B/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    SIMCUDA_DIR=$PLACE/sim
    mkdir -p "$SIMCUDA_DIR"
    export LD_LIBRARY_PATH SIMCUDA_DIR SIMCUDA_LINGER=0ms SIMCUDA_CAPACITY=128
}

# device_find: 0 when there is a device to check on, else DEVICE_REASON says why not.
device_find() {
    probe=$B/tests/sim/conformance/init
    if [ ! -x "$probe" ]; then
        DEVICE_REASON="the conformance programs are not built"
        return 1
    fi
    place=$(ldd "$probe" | sed -n 's/.*libcuda\.so\.1 => \(.*\)/\1/p')
    case $place in
    *"not found"*)
        DEVICE_REASON="there is no libcuda.so.1 here"
        return 1
        ;;
    "$B"/sim/*)
        if [ -z "$SIMULATED" ]; then
            DEVICE_REASON="libcuda.so.1 is the simulated one"
            return 1
        fi
        ;;
    esac
    DEVICE_REASON=$(timeout 60 "$probe" 2>&1 | tail -n 1)
    case $DEVICE_REASON in ok:*) return 0 ;; esac
    return 1
}

device_record() {
    say "date: $(date -u '+%Y-%m-%d %H:%M:%S UTC')"
    say "device: $DEVICE_REASON"
    if [ -n "$SIMULATED" ]; then
        say "this is the simulated device: the report says nothing about a GPU"
    elif command -v nvidia-smi > /dev/null; then
        facts=name,driver_version,compute_mode,mig.mode.current
        say "nvidia-smi: $(nvidia-smi --query-gpu=$facts --format=csv,noheader 2>&1 | head -n 1)"
    elif [ -r /proc/driver/nvidia/version ]; then
        say "driver: $(head -n 1 /proc/driver/nvidia/version)"
    fi
    say "host: $(uname -srm), $(getconf GNU_LIBC_VERSION)"
}
