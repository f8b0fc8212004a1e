"""What the ring's file says while clients run: the few words of its header that a benchmark needs.

Read only, where tests/multi/places says that they lie; its fingerprint tells of one that was built
before the layout changed.
"""
import mmap
import os
import threading

from parts.stage import Failed
from places import Places


class RingFile:
    def __init__(self, directory, build):
        names = [n for n in os.listdir(directory) if n.endswith(".ring")]
        if len(names) != 1:
            raise Failed("rings in %s: %s" % (directory, names))
        with open(os.path.join(directory, names[0]), "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.places = Places(build)
        if self.word("fingerprint") != self.places.fingerprint:
            raise Failed("the ring's layout is not that of tests/multi/places: run make tests first")

    def word(self, name):
        return self.places.number(self.map, "segment." + name)


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
        last, until = self.ring.word("passed_ns"), self.ring.word("crowded_ns")
        while not self.done.wait(self.every_s):
            passed = self.ring.word("passed_ns")
            if passed != last:
                self.times.append((passed, until > passed))
            last, until = passed, self.ring.word("crowded_ns")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *reason):
        self.done.set()
        self.thread.join()
