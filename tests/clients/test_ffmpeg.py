#!/usr/bin/env python3
"""Debian's ffmpeg: frames go up, through a CUDA filter and down again; a C program that looks each
driver function up by dlsym."""
# timeout: 300
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import MIB, check, equal

FRAMES = 100
COMMAND = ["ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error",
           "-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu",
           "-f", "lavfi", "-i", "testsrc=size=320x240:rate=25:duration=4,format=nv12",
           "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=4,format=nv12",
           "-filter_complex", "[0]hwupload[a];[1]hwupload[b];"
           "[a][b]overlay_cuda=16:16,hwdownload,format=nv12",
           "-f", "framemd5", "-"]


def check_frames():
    bare, capped = room.run(COMMAND, False), room.run(COMMAND, True)
    room.compare_text(bare, capped, 2 * FRAMES)
    sums = {line.split()[-1] for line in bare.words.splitlines() if not line.startswith("#")}
    equal(len(sums), FRAMES, "different frames")
    equal(room.work(capped.trace)["kernel", "Overlay_Cuda"], 2 * FRAMES, "its kernel's launches")


def check_refusal():
    """A cap below one frame's size: the driver's own error, in ffmpeg's words."""
    done = room.run(COMMAND, True, cap=100 << 10)
    check(done.status != 0, "it ran below one frame's size")
    check("CUDA_ERROR_OUT_OF_MEMORY" in done.errors, "it said: %s" % done.errors[-500:])
    check(done.tenant["refusals"] > 0, "no refusal in the books")
    gave = room.peak(done.trace)
    check(gave < room.CONTEXT + 4 * MIB, "the device gave %d bytes" % gave)


if __name__ == "__main__":
    room.need("ffmpeg")
    room.farm.run(check_frames, check_refusal)
