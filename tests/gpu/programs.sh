# Programs on NVIDIA's own runtime and libraries, and PyTorch; part of tests/gpu/run. Each runs
# bare, under the preload, and under the preload with a memory cap. What cannot be built is skipped.

PROGRAM_CHECKS="program/runtime-static program/runtime-shared program/blas program/torch"
PROGRAM_CAP=2147483648

# program_skip NAME REASON
program_skip() {
    ! wanted "program/$1" || count skip "program/$1" "$2"
}

# program_check NAME CAPPED COMMAND...: CAPPED is 1 when the program takes the cap as its argument.
program_check() {
    program=$1 capped=$2
    shift 2
    check "program/$program" bare "$@"
    [ -f "$PRELOAD" ] || return 0
    check "program/$program-preloaded" preloaded "$@"
    [ "$capped" = 1 ] || return 0
    check "program/$program-capped" preloaded CUSLICE_MEM_LIMIT=$PROGRAM_CAP "$@" $PROGRAM_CAP
}

programs_check_runtime() {
    nvcc=$(command -v nvcc || echo "$CUDA/bin/nvcc")
    for kind in static shared; do
        wanted "program/runtime-$kind" || continue
        if [ ! -x "$nvcc" ]; then
            program_skip runtime-$kind "there is no nvcc"
        elif ! "$nvcc" -arch=native -cudart $kind -o "$PROGRAMS/runtime-$kind" \
            "$REPO/tests/gpu/programs/runtime.cu" > "$PLACE/output" 2>&1; then
            program_skip runtime-$kind "nvcc: $(tail -n 1 "$PLACE/output")"
        else
            program_check runtime-$kind 1 env LD_LIBRARY_PATH="$LIBRARIES" \
                "$PROGRAMS/runtime-$kind"
        fi
    done
}

programs_check_blas() {
    wanted program/blas || return 0
    if [ ! -e "$CUDA/lib64/libcublas.so" ] || [ ! -e "$CUDA/include/cublas_v2.h" ]; then
        program_skip blas "there is no cuBLAS in $CUDA"
    elif ! "${CC:-gcc}" -O2 -I"$CUDA/include" -o "$PROGRAMS/blas" \
        "$REPO/tests/gpu/programs/blas.c" -L"$CUDA/lib64" -lcublas -lcudart \
        > "$PLACE/output" 2>&1; then
        program_skip blas "${CC:-gcc}: $(tail -n 1 "$PLACE/output")"
    else
        program_check blas 0 env LD_LIBRARY_PATH="$LIBRARIES" "$PROGRAMS/blas"
    fi
}

programs_check_torch() {
    wanted program/torch || return 0
    if ! python3 -c 'import torch' > /dev/null 2>&1; then
        program_skip torch "PyTorch is not installed"
    else
        program_check torch 1 python3 "$REPO/tests/gpu/programs/torch_train.py"
    fi
}

programs_check() {
    if [ -n "$SIMULATED" ]; then
        for part in $PROGRAM_CHECKS; do
            program_skip "${part#program/}" "NVIDIA's runtime does not run on the simulated device"
        done
        return 0
    fi
    LIBRARIES=$CUDA/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    programs_check_runtime
    programs_check_blas
    programs_check_torch
}
