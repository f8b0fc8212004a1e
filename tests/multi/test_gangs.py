#!/usr/bin/env python3
"""Gangs: jobs whose kernels on several GPUs wait for one another have those GPUs at the same time,
as one process with two GPUs and as two processes with one each. Without a gang's name the allowance
saves them, and the overruns are counted."""
# timeout: 240
import contextlib
import os
import select
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check, equal

CLIENT = os.path.join(os.environ["B"], "tests/multi/gang_client")
FORMS = {"one process": [[0, 1]], "two processes": [[0], [1]]}


class Job:
    """Ranks 0 and 1 of one job, in so many processes as `parts` has lists."""

    def __init__(self, place, tag, parts, steps, work_ns, **settings):
        words = os.path.join(place.place, tag + ".words")
        self.log = os.path.join(place.place, tag + ".log")
        env = place.environment(tag, None, None, **settings)
        with open(self.log, "ab") as errors:
            self.processes = [
                subprocess.Popen([CLIENT, words, "2", str(steps), str(work_ns),
                                  *(str(rank) for rank in ranks)], env=env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=errors) for ranks in parts]
        for process in self.processes:
            equal(self.hear(process, farm.SOON), "ready", "a rank")

    def hear(self, process, seconds):
        check(select.select([process.stdout], [], [], seconds)[0], "a rank of job %s is stuck; %s" %
              (os.path.basename(self.log), self.said()))
        return process.stdout.readline().decode().strip()

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def go(self, backwards=False):
        """Starts the ranks one after the other."""
        for process in self.processes[::-1] if backwards else self.processes:
            process.stdin.write(b"go\n")
            process.stdin.flush()
            time.sleep(0.002)

    def ms(self, seconds):
        return [float(self.hear(p, seconds)) for p in self.processes]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def jobs_of(place, parts, steps, work_ns=1000000, **settings):
    jobs = []
    try:
        for tag in "ab":
            jobs.append(Job(place, tag, parts, steps, work_ns, **settings))
        yield jobs
    finally:
        for job in jobs:
            job.end()


def both_held(trace, tags):
    """Whether, turn for turn, both devices had the same job: how many milliseconds one device ran
    one job's work while the other device ran the other's."""
    spans = {(tag, device): [(r.start, r.end) for r in trace.of(tag) if r.device == device]
             for tag in tags for device in (0, 1)}
    mixed = 0
    for a, b in ((tags[0], tags[1]), (tags[1], tags[0])):
        for start, end in spans[a, 0]:
            for s, e in spans[b, 1]:
                mixed += max(0, min(end, e) - max(start, s))
    return mixed / MS


def run_both(parts, steps=300, seconds=60, **settings):
    """Both jobs, each beginning on the GPU that the other does not begin on."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE="2s") as place, \
            jobs_of(place, parts, steps, **settings) as jobs:
        begun = time.monotonic()
        jobs[0].go()
        jobs[1].go(backwards=True)
        for job in jobs:
            job.ms(seconds)
        took = 1000 * (time.monotonic() - begun)
        mixed = both_held(place.trace(), "ab")
        tenants = [t for g in place.status()["gpus"] for t in g["tenants"]]
        overruns = sum(t["overruns"] for t in tenants)
        print("  %.0f ms for 2 x %d steps of 1 ms; the jobs had one GPU each for %.1f ms; "
              "%d overruns" % (took, steps, mixed, overruns))
        return took, mixed, overruns, sum(t["revocations"] for t in tenants)


def check_alternate(form):
    took, mixed, overruns, revoked = run_both(FORMS[form], GANG="job")
    check(took < 4 * 600, "%s: %.0f ms for 600 ms of work" % (form, took))
    check(mixed < 20, "%s: the jobs had one GPU each for %.1f ms" % (form, mixed))
    equal((overruns, revoked), (0, 0), "overruns and revocations")


def check_one_process():
    check_alternate("one process")


def check_two_processes():
    check_alternate("two processes")


farm.run(check_one_process, check_two_processes)
