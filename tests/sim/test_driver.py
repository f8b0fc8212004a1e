#!/usr/bin/env python3
"""The simulated driver's names: every symbol of the list is there with an address of its own, what is
not implemented says so, no export table is offered, and an older driver lacks what came later, by
cuGetProcAddress and by dlsym alike. Needs B (the build directory). timeout: 120
"""
import ctypes
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("B", os.path.join(HERE, "..", "..", "build"))
DRIVER = os.path.join(BUILD, "sim", "libcuda.so.1")
NOT_FOUND, NOT_SUPPORTED, INVALID_VALUE = 500, 801, 1
STUB = "cuCheckpointProcessLock"  # nothing here will ever implement it

failures = 0


def expect(condition, text):
    global failures
    if not condition:
        failures += 1
        print("wrong:", text)


def names():
    with open(os.path.join(HERE, "gen", "symbols.txt"), encoding="ascii") as file:
        return file.read().split()


def address(cuda, name):
    return ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value


def look_up(cuda, name, version, flags=0):
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), version,
                                      ctypes.c_uint64(flags), ctypes.byref(status))
    return result, function.value, status.value


def check_symbols(cuda):
    seen = {}
    for name in names():
        if hasattr(cuda, name):
            seen.setdefault(address(cuda, name), []).append(name)
        else:
            expect(False, name + " is not exported")
    for shared in seen.values():
        expect(len(shared) == 1, "one address for " + ", ".join(shared))


def check_look_ups(cuda):
    for name, version, flags, symbol in (
            ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
            ("cuMemAlloc", 3020, 1, "cuMemAlloc_v2"),
            ("cuMemcpyHtoD", 6050, 2, "cuMemcpyHtoD_v2"),
            ("cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"),
            ("cuGraphInstantiate", 10000, 0, "cuGraphInstantiate"),
            ("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2"),
            ("cuGetProcAddress", 12000, 2, "cuGetProcAddress_v2")):
        result, function, status = look_up(cuda, name, version, flags)
        expect((result, status) == (0, 0) and function == address(cuda, symbol),
               f"{name} at {version}, flags {flags} is not {symbol}")
    expect(look_up(cuda, "cuMemAlloc", 1000) == (0, None, 2), "a version below all of a name's")
    expect(look_up(cuda, "cuMemAlloc_v2", 12000) == (0, None, 1), "a full name is no base name")
    expect(look_up(cuda, "", 12000) == (0, None, 1), "the empty name")
    expect(look_up(cuda, "cuMemAlloc", 12000, 3)[0] == INVALID_VALUE, "flags that do not exist")
    expect(look_up(cuda, "cuMemAlloc", 99000)[0] == INVALID_VALUE, "a version above the driver's")


def check_refusals(cuda):
    table = ctypes.c_void_p(1)
    expect(cuda.cuGetExportTable(ctypes.byref(table), bytes(range(16))) == NOT_FOUND and
           not table.value, "an export table was offered")
    expect(getattr(cuda, STUB)(0, None) == NOT_SUPPORTED, STUB + " is implemented")
    log = subprocess.run([sys.executable, __file__, "stub"], stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "SIMCUDA_LOG": "1"}, check=False)
    expect(STUB in log.stderr, "a call of a stub was not logged: " + repr(log.stderr))


def check_errors(cuda):
    text = ctypes.c_char_p()
    expect(cuda.cuGetErrorName(2, ctypes.byref(text)) == 0 and
           text.value == b"CUDA_ERROR_OUT_OF_MEMORY", "the name of error 2")
    expect(cuda.cuGetErrorString(0, ctypes.byref(text)) == 0 and text.value, "the text of success")
    expect(cuda.cuGetErrorName(4321, ctypes.byref(text)) == INVALID_VALUE and not text.value,
           "an error that does not exist has a name")


def older(version, there, gone):
    """Run in a process with SIMCUDA_DRIVER_VERSION set."""
    cuda = ctypes.CDLL(DRIVER)
    told = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(told))
    expect(told.value == version, f"the driver says {told.value}, not {version}")
    for name in there:
        expect(hasattr(cuda, name), f"{name} is missing in {version}")
    for name in gone:
        expect(not hasattr(cuda, name), f"{name} is in {version}")
    if hasattr(cuda, "cuGetProcAddress_v2"):
        expect(look_up(cuda, "cuCtxCreate", version)[1] == address(cuda, "cuCtxCreate_v3"),
               f"cuCtxCreate of {version} is not the third")
        expect(look_up(cuda, "cuDeviceGetHostAtomicCapabilities", version) == (0, None, 1),
               "a function of 13.0 is known")


OLDER = {
    12040: (["cuGetProcAddress_v2", "cuLaunchKernelEx", "cuCtxCreate_v3"],
            ["cuCtxRecordEvent", "cuCtxCreate_v4", "cuCtxSynchronize_v2"]),
    11080: (["cuGetProcAddress", "cuLaunchKernelEx", "cuMemAlloc_v2"],
            ["cuGetProcAddress_v2", "cuLibraryLoadData", "cuGraphAddNode"]),
    11020: (["cuMemAllocAsync", "cuLaunchKernel"], ["cuGetProcAddress", "cuLaunchKernelEx"]),
}


def main():
    global failures
    if sys.argv[1:] == ["stub"]:
        getattr(ctypes.CDLL(DRIVER), STUB)(0, None)
        return 0
    if sys.argv[1:]:
        older(int(sys.argv[1]), *OLDER[int(sys.argv[1])])
        return failures != 0
    cuda = ctypes.CDLL(DRIVER)
    check_symbols(cuda)
    check_look_ups(cuda)
    check_refusals(cuda)
    check_errors(cuda)
    for version in OLDER:
        failures += subprocess.run([sys.executable, __file__, str(version)], check=False,
                                   env={**os.environ, "SIMCUDA_DRIVER_VERSION": str(version)}
                                   ).returncode
    print("ok: %d symbols, four driver versions" % len(names()) if not failures else "FAILED")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
