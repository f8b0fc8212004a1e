#!/usr/bin/env python3
"""What the simulated driver reads of loadable images: PTX text, cubins, fat binaries (plain, LZ4 and
in a host object's wrapper), linked images; their parameters and variables; damaged ones, which must be
refused or read but never crash the program. Needs B (the build directory). timeout: 120
"""
import ctypes
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("B", os.path.join(HERE, "..", "..", "build"))
INVALID_IMAGE, NO_BINARY, INVALID_PTX, UNSUPPORTED_PTX, NOT_FOUND = 200, 209, 218, 222, 500

failures = 0

PTX = """// a comment with .entry in it
.version 7.0
.target sm_50, debug
.address_size 64
.file 1 "a.cu", 12, 13
.extern .global .u32 elsewhere;
.visible .global .align 8 .u64 table[3] = {generic(elsewhere)+8, 258, -1};
.global .f32 floats[] = {0f3F800000, 0f40000000};
.const .align 16 .b8 constants[20] = {1, 2, 3};
.func (.reg .u32 r) inner (.reg .u32 a) { { ret; } }
.visible .entry first(.param .u64 .ptr .global .align 1 a, .param .u8 b,
                      .param .align 16 .b8 c[5], .param .f64 d)
.maxntid 32, 2
{
    .shared .align 16 .b8 scratch[100];
    .shared .u32 more;
    /* } */ ret;
}
.weak .entry second() { ret; }
"""
FIRST = ((0, 8), (8, 1), (16, 5), (24, 8))
CODE = """struct S { double d; char c; int a[3]; };
__device__ unsigned counter = 258;
extern "C" __global__ void first(int *p, char c, S s, long n) { p[n] = c + s.a[0] + counter; }
extern "C" __global__ void second() {}
struct L { char x[20000]; };
extern "C" __global__ void large(L l, int *p, char c) { *p = l.x[c]; }
"""
FIRST_CODE = ((0, 8), (8, 1), (16, 24), (40, 8))
LARGE_CODE = ((0, 20000), (20000, 8), (20008, 1))


def expect(condition, text):
    global failures
    if not condition:
        failures += 1
        print("wrong:", text)


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL(os.path.join(BUILD, "sim", "libcuda.so.1"))
        context = ctypes.c_void_p()
        assert not self.cuda.cuInit(0)
        assert not self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        assert not self.cuda.cuCtxSetCurrent(context)

    def load(self, image):
        module = ctypes.c_void_p()
        result = self.cuda.cuModuleLoadData(ctypes.byref(module), image)
        return result, module

    def function(self, module, name):
        function = ctypes.c_void_p()
        result = self.cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        return None if result else function

    def params(self, function):
        found, at, size = [], ctypes.c_size_t(), ctypes.c_size_t()
        while not self.cuda.cuFuncGetParamInfo(function, ctypes.c_size_t(len(found)),
                                               ctypes.byref(at), ctypes.byref(size)):
            found.append((at.value, size.value))
        return tuple(found)

    def attribute(self, function, number):
        value = ctypes.c_int()
        assert not self.cuda.cuFuncGetAttribute(ctypes.byref(value), number, function)
        return value.value

    def variable(self, module, name):
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        if self.cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module,
                                          name.encode()):
            return None
        data = ctypes.create_string_buffer(size.value)
        assert not self.cuda.cuMemcpyDtoH_v2(data, address, size)
        return data.raw

    def check_good(self, image, what, params):
        result, module = self.load(image)
        expect(result == 0, f"{what}: error {result}")
        if result:
            return
        first = self.function(module, "first")
        expect(first and self.params(first) == params, f"{what}: parameters of first")
        expect(self.function(module, "second"), f"{what}: no second")
        expect(not self.function(module, "inner"), f"{what}: inner is no kernel")
        expect(self.cuda.cuModuleUnload(module) == 0, f"{what}: unload")

    def check_ptx(self):
        module = self.load(PTX.encode())[1]
        first = self.function(module, "first")
        expect(self.attribute(first, 0) == 64, "threads of first")
        expect(self.attribute(first, 1) == 104, "shared memory of first")
        expect(self.variable(module, "table") == struct.pack("<QQq", 0, 258, -1), "table")
        expect(self.variable(module, "floats") == struct.pack("<ff", 1, 2), "floats")
        expect(self.variable(module, "constants") == bytes((1, 2, 3)) + bytes(17), "constants")
        expect(self.variable(module, "elsewhere") is None, "an extern variable was made")


def entry(kind, arch, data, flags=0, plain=0):
    padded = data + bytes(-len(data) % 8)
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), len(data) if flags else 0, 0,
                       0, 7, arch, 0, 0, flags | 0x11, 0, plain) + padded


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(body)) + body


def lz4(data):
    """One block: literals, a match (the last 8 bytes again), literals."""
    head, tail = data[:300], data[308:]
    assert data[300:308] == data[292:300]
    return (bytes((0xf4, 255, 300 - 15 - 255)) + head + struct.pack("<H", 8) +
            bytes((0xf0,)) + bytes((255,)) * ((len(tail) - 15) // 255) +
            bytes(((len(tail) - 15) % 255,)) + tail)


def check_containers(driver):
    text = PTX.encode() + b"\0"
    driver.check_good(container(entry(1, 50, text)), "a fat binary of PTX", FIRST)
    driver.check_good(container(entry(1, 200, b"newer"), entry(2, 120, b"other"),
                                entry(1, 50, text)), "PTX beside code for newer devices", FIRST)
    repeat = (" " * 300 + " " * 8).encode() + text
    driver.check_good(container(entry(1, 50, lz4(repeat), 0x2000, len(repeat))), "LZ4", FIRST)
    expect(driver.load(container(entry(1, 50, lz4(repeat), 0x2000, len(repeat) + 1)))[0] ==
           INVALID_IMAGE, "LZ4 of another size")
    expect(driver.load(container(entry(2, 120, b"other")))[0] == NO_BINARY, "nothing that fits")
    inner = ctypes.create_string_buffer(container(entry(1, 50, text)))
    wrapper = struct.pack("<IIQQ", 0x466243b1, 1, ctypes.addressof(inner), 0)
    driver.check_good(wrapper, "a host object's wrapper", FIRST)


def check_errors(driver):
    for image, error in ((b"", INVALID_IMAGE), (b"no module", INVALID_IMAGE),
                         (b".version 7.0\n", INVALID_PTX),
                         (b".version 7.0\n.target sm_50\n.visible .entry x(\n", INVALID_PTX),
                         (b".version 7.0\n.target sm_50\nwords\n", INVALID_PTX),
                         (b".version 7.0\n.target sm_500\n", INVALID_PTX),
                         (b".version 9.9\n.target sm_50\n", UNSUPPORTED_PTX)):
        expect(driver.load(image)[0] == error, f"{image} does not give {error}")


def check_link(driver):
    cuda, state, out, size = driver.cuda, ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    other = b".version 7.0\n.target sm_50\n.visible .entry third(.param .u32 a) { ret; }\n"
    expect(cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state)) == 0, "link")
    for text in (PTX.encode(), other):
        expect(cuda.cuLinkAddData_v2(state, 1, text, ctypes.c_size_t(len(text)), b"x", 0, None,
                                     None) == 0, "adding PTX to a link")
    expect(cuda.cuLinkAddData_v2(state, 1, b"bad", ctypes.c_size_t(3), b"x", 0, None, None) ==
           INVALID_IMAGE, "adding what is no PTX")
    expect(cuda.cuLinkComplete(state, ctypes.byref(out), ctypes.byref(size)) == 0, "link complete")
    image = ctypes.string_at(out, size.value)
    expect(cuda.cuLinkDestroy(state) == 0, "link destroy")
    driver.check_good(image, "a linked image", FIRST)
    module = driver.load(image)[1]
    third = driver.function(module, "third")
    expect(third and driver.params(third) == ((0, 4),), "the second linked module's kernel")


def toolkit_images(directory):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        return []
    source = os.path.join(directory, "a.cu")
    with open(source, "w", encoding="ascii") as file:
        file.write(CODE)
    images = []
    for name, args in (("cubin", ["-cubin", "-arch=sm_90"]), ("ptx", ["-ptx", "-arch=compute_75"]),
                       ("fatbin", ["-fatbin", "-gencode=arch=compute_75,code=sm_75",
                                   "-gencode=arch=compute_90,code=[sm_90,compute_90]"])):
        out = os.path.join(directory, "a." + name)
        if subprocess.run([nvcc, *args, source, "-o", out], check=False,
                          capture_output=True).returncode == 0:
            with open(out, "rb") as file:
                images.append((name, file.read()))
    return images


def too_new(driver, image):
    """PTX of a compiler newer than the driver is refused, as a driver must."""
    version, release = ctypes.c_int(), re.search(rb"release (\d+)\.(\d+)", image)
    driver.cuda.cuDriverGetVersion(ctypes.byref(version))
    return release and int(release[1]) * 1000 + int(release[2]) * 10 > version.value


def check_toolkit(driver, images):
    for name, image in images:
        if name == "ptx" and too_new(driver, image):
            expect(driver.load(image + b"\0")[0] == UNSUPPORTED_PTX, "PTX newer than the driver")
            continue
        driver.check_good(image + b"\0", "nvcc's " + name, FIRST_CODE)
        module = driver.load(image + b"\0")[1]
        expect(driver.variable(module, "counter") == struct.pack("<I", 258), name + ": counter")
        large = driver.function(module, "large")
        expect(large and driver.params(large) == LARGE_CODE, name + ": parameters of large")


def damage(driver, images):
    """Loads images with bytes changed; ends with 0 if nothing crashed."""
    chance = random.Random(7)
    good = bad = 0
    for _ in range(1500):
        image = bytearray(chance.choice(images))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(image) if chance.random() < .5 else min(256, len(image)))
            image[at] = chance.choice((0, 255, chance.randrange(256)))
        module = ctypes.c_void_p()
        if driver.cuda.cuModuleLoadData(ctypes.byref(module), bytes(image) + b"\0"):
            bad += 1
        else:
            good += 1
            driver.cuda.cuModuleUnload(module)
    expect(good > 50 and bad > 50, f"{good} damaged images were read, {bad} refused")


def main():
    driver = Driver()
    with tempfile.TemporaryDirectory() as directory:
        images = toolkit_images(directory)
    driver.check_good(PTX.encode(), "PTX", FIRST)
    driver.check_ptx()
    check_containers(driver)
    check_errors(driver)
    check_link(driver)
    check_toolkit(driver, images)
    damage(driver, [PTX.encode(), container(entry(1, 50, PTX.encode() + b"\0"))] +
           [image for _, image in images])
    print("FAILED" if failures else "ok: PTX, fat binaries, linked images, %d images of nvcc, 1500 "
          "damaged ones" % len(images))
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
