"""Where the fields of the shared files lie, as the program `places` prints it from the headers.

    memory[PLACES["segment.token"]]                    the bytes of a field
    for slot in PLACES.each(memory, "segment.slot"):   the records of an array
        PLACES.number(slot, "slot.pid")                a field of one
Used by bench too.
"""
import os
import subprocess


class Places(dict):
    """A slice by the name of each field that places.c lists; `fingerprint` is that of the layout."""

    def __init__(self, build):
        said = subprocess.check_output([os.path.join(build, "tests/multi/places")], text=True)
        fingerprint, *lines = said.splitlines()
        self.fingerprint = int(fingerprint)
        for name, at, size in map(str.split, lines):
            self[name] = slice(int(at), int(at) + int(size))

    def number(self, memory, name):
        return int.from_bytes(memory[self[name]], "little")

    def put(self, memory, name, number):
        place = self[name]
        memory[place] = number.to_bytes(place.stop - place.start, "little")

    def each(self, memory, name):
        """The records of an array: copies, or of a memoryview the records themselves."""
        whole, first = self[name], self[name + "[0]"]
        size = first.stop - first.start
        return [memory[at:at + size] for at in range(whole.start, whole.stop, size)]
