"""What the ring's file says while clients run: the few words of its header that a benchmark needs.

Read only, and by offsets of include/cuslice/segment.h, which the magic and the version guard: they
change together with the layout.
"""
import mmap
import os
import struct
import threading

from parts.stage import Failed

MAGIC, VERSION = 0x31676E6952754343, 3
PASSED_NS, CLOSE_NS, CROWDED_NS = 432, 488, 496


class RingFile:
    def __init__(self, directory):
        names = [n for n in os.listdir(directory) if n.endswith(".ring")]
        if len(names) != 1:
            raise Failed("rings in %s: %s" % (directory, names))
        with open(os.path.join(directory, names[0]), "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if struct.unpack_from("<QI", self.map, 0) != (MAGIC, VERSION):
            raise Failed("the ring's layout is not the one that is read here")

    def word(self, offset):
        return struct.unpack_from("<Q", self.map, offset)[0]


class Passes:
    """Notes when the token moved, by looking more often than turns end, in a thread of its own: pairs
    of the time and of whether close looks were off just before, since somebody who looked closely
    was put off its CPU."""

    def __init__(self, ring, every_s):
        self.ring = ring
        self.every_s = every_s
        self.times = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        last, until = self.ring.word(PASSED_NS), self.ring.word(CROWDED_NS)
        while not self.done.wait(self.every_s):
            passed = self.ring.word(PASSED_NS)
            if passed != last:
                self.times.append((passed, until > passed))
            last, until = passed, self.ring.word(CROWDED_NS)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *reason):
        self.done.set()
        self.thread.join()
