"""Runs the client programs of this room on a farm's device and ring: plain CUDA programs that take
their orders as arguments and print what they saw."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm


class Program:
    """One run of $B/tests/integration/NAME; ended with the farm if it is still there."""

    def __init__(self, place, tag, name, *words, log=None, sim=None, preload=None,
                 library_path=None, **settings):
        """`library_path`: where another driver than the simulated one lies."""
        self.tag = tag
        self.log_path = log or os.path.join(place.place, "%s.%d.log" % (tag, len(place.workers)))
        with open(self.log_path, "ab") as errors:
            self.process = subprocess.Popen(
                [os.path.join(farm.B, "tests/integration", name), *[str(word) for word in words]],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=dict(place.environment(tag, sim, preload, **settings),
                         **({"LD_LIBRARY_PATH": library_path} if library_path else {})))
        self.pid = self.process.pid
        place.workers.append(self)

    def said(self):
        """The next line that it prints."""
        line = self.process.stdout.readline()
        if not line:
            raise farm.Gone("%s (%d) ended; it said: %s" % (self.tag, self.pid, self.log()))
        return line.rstrip("\n")

    def finish(self, timeout=30):
        """(exit status, lines)."""
        try:
            out, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError("%s (%d) does not end; it said: %s" % (
                self.tag, self.pid, self.log())) from None
        return self.process.returncode, out.splitlines()

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(farm.SOON)
