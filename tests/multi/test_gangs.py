#!/usr/bin/env python3
"""Gangs: jobs whose kernels on several GPUs wait for one another have those GPUs at the same time,
as one process with two GPUs and as two processes with one each. Without a gang's name the allowance
saves them, and the overruns are counted."""
# timeout: 240
import contextlib
import os
import select
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, PLACES, check, equal

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

    def go(self, backwards=False, apart=0.002):
        """Starts the ranks one after the other, so many seconds apart."""
        for process in self.processes[::-1] if backwards else self.processes:
            process.stdin.write(b"go\n")
            process.stdin.flush()
            time.sleep(apart)

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


def books(place):
    """Overruns and revocations of all tenants, on both devices."""
    tenants = [t for g in place.status()["gpus"] for t in g["tenants"]]
    return sum(t["overruns"] for t in tenants), sum(t["revocations"] for t in tenants)


def run_both(parts, steps=300, seconds=60, allowance="2s", **settings):
    """Both jobs, each beginning on the GPU that the other does not begin on."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE=allowance) as place, \
            jobs_of(place, parts, steps, **settings) as jobs:
        begun = time.monotonic()
        jobs[0].go()
        jobs[1].go(backwards=True)
        for job in jobs:
            job.ms(seconds)
        took = 1000 * (time.monotonic() - begun)
        mixed = both_held(place.trace(), "ab")
        overruns, revoked = books(place)
        print("  %.0f ms for 2 x %d steps of 1 ms; the jobs had one GPU each for %.1f ms; "
              "%d overruns" % (took, steps, mixed, overruns))
        return took, mixed, overruns, revoked


def check_alternate(form):
    took, mixed, overruns, revoked = run_both(FORMS[form], GANG="job")
    check(took < 3 * 600, "%s: %.0f ms for 600 ms of work" % (form, took))
    check(mixed < 20, "%s: the jobs had one GPU each for %.1f ms" % (form, mixed))
    equal((overruns, revoked), (0, 0), "overruns and revocations")


def check_one_process():
    check_alternate("one process")


def check_two_processes():
    check_alternate("two processes")


def check_late_work():
    """The first rank to submit has the last GPU of its job, and the others submit nothing for a
    while: they are of the gang since their contexts were made, and their GPUs are kept for them."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE="2s") as place, \
            jobs_of(place, FORMS["two processes"], 300, GANG="job") as jobs:
        begun = time.monotonic()
        for job in jobs:
            job.go(backwards=True, apart=0.1)
        took = [max(job.ms(60)) for job in jobs]
        took.append(1000 * (time.monotonic() - begun))
        print("  %.0f and %.0f ms, %.0f in all, for 600 ms of work" % tuple(took))
        check(took[2] < 1600, "%.0f ms for 600 ms of work" % took[2])
        equal(books(place), (0, 0), "overruns and revocations")


def check_late_process():
    """A job whose second process starts late, with the first GPU: what the first process has on the
    other one waits for it, and is an overrun, once."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE="2s") as place:
        jobs = []
        try:
            jobs.append(Job(place, "a", [[1]], 300, 1000000, GANG="job"))
            jobs.append(Job(place, "b", FORMS["two processes"], 300, 1000000, GANG="job"))
            for job in jobs:
                job.go()
            time.sleep(0.1)
            jobs.append(Job(place, "a", [[0]], 300, 1000000, GANG="job"))
            jobs[2].go()
            took = [max(job.ms(60)) for job in jobs]
            print("  %.0f ms and %.0f ms for 300 ms of work each; overruns: %d" %
                  (took[2], took[1], books(place)[0]))
            check(max(took) < 1800, "%.0f ms for 600 ms of work" % max(took))
            equal(books(place)[1], 0, "revocations")
        finally:
            for job in jobs:
                job.end()


def check_without():
    """Without a name both jobs get stuck; each time the allowance ends it, and that is counted."""
    took, mixed, overruns, _ = run_both(FORMS["two processes"], steps=60, allowance="100ms")
    check(overruns > 0, "no overrun is counted")
    check(mixed > 50, "the jobs had one GPU each for %.1f ms only" % mixed)
    check(took < 30000, "%.0f ms" % took)


def check_neighbour():
    """A client of one GPU beside a gang of two: neither is stuck, and they share that GPU."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="10ms", ALLOWANCE="2s") as place:
        c = place.worker("c", opened=False)
        c.ok("open 1")
        job = Job(place, "a", FORMS["two processes"], 500, 1000000, GANG="job")
        try:
            loop = c.post("loop 2500 1000000 0")
            job.go()
            job.ms(30)
            trace = place.trace()
            runs = [r for r in trace.runs if r.device == 1 and r.kind == "kernel"]
            start, end = (f(r.start for r in runs if r.client == "a") for f in (min, max))
            part = {tag: sum(min(r.end, end) - max(r.start, start) for r in runs
                             if r.client == tag and r.end > start and r.start < end) for tag in "ac"}
            share = 100.0 * part["c"] / (end - start)
            print("  the neighbour has %.1f %% of its GPU, the gang takes %.0f ms for 500 ms" %
                  (share, (end - start) / MS))
            farm.between(share, 40, 60, "the neighbour's part")
            equal(books(place), (0, 0), "overruns and revocations")
            check(end - start < 2500 * MS, "the gang takes %.0f ms" % ((end - start) / MS))
            equal(farm.numbers(loop.result(farm.SOON))[0], 0, "the neighbour's result")
        finally:
            job.end()


@contextlib.contextmanager
def running(steps, seconds):
    """Two gangs of two processes each, so long after their start; (place, jobs)."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE="200ms") as place, \
            jobs_of(place, FORMS["two processes"], steps, GANG="job") as jobs:
        for job in jobs:
            job.go()
        time.sleep(seconds)
        yield place, jobs


def check_killed():
    """A rank that is killed leaves a kernel that never ends: the other job goes on all the same."""
    with running(200, 0.1) as (_, jobs):
        jobs[0].processes[1].kill()
        print("  the other job takes %.0f ms" % max(jobs[1].ms(60)))


def check_stopped():
    """A rank that is stopped in a turn costs the other job its allowance, and both end well."""
    with running(200, 0.1) as (_, jobs):
        jobs[0].processes[0].send_signal(signal.SIGSTOP)
        took = max(jobs[1].ms(60))
        jobs[0].processes[0].send_signal(signal.SIGCONT)
        print("  the other job takes %.0f ms; both end after %.0f ms" % (took, max(jobs[0].ms(60))))


def check_file_gone():
    """The gang's file is removed, and damaged, under running jobs."""
    with running(1500, 0.3) as (place, jobs):
        files = [os.path.join(place.ring, n) for n in os.listdir(place.ring) if
                 n.endswith(".gang")]
        equal(len(files), 2, "gangs")
        os.unlink(files[0])
        with open(files[1], "r+b") as file:
            file.seek(PLACES["gang.turn"].start)
            file.write(os.urandom(1000))
        print("  both end after %.0f ms" % max(max(job.ms(100)) for job in jobs))


def check_unused_device():
    """A process that sees both devices and uses one does not hold up the other."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE="20s") as place:
        a, b = (place.worker(tag, opened=False, GANG="job") for tag in "ab")
        a.ok("open 0")
        b.ok("open 1")
        a.ok("hold")
        check(farm.answered(b.post("spin 100000 50"), 5), "a launch waits for an unused device")
        a.ok("release")
        a.ok("sync")


def check_context_gone():
    """The gang waits for a GPU while one of its processes has a context there, and no longer."""
    with farm.Farm(sim={"DEVICES": 2}, QUANTUM="20ms", ALLOWANCE="20s") as place:
        workers = [place.worker(tag, opened=False, GANG=gang) for tag, gang in
                   (("a", "job"), ("a", "job"), ("c", None), ("d", None))]
        for worker, device in zip(workers, (0, 1, 1, 0)):
            worker.ok("open %d" % device)
        first, second, other, between = workers
        for _ in range(100):  # as often as there are places in a gang, and more
            second.ok("context reset")
            second.ok("open 1")
        other.ok("hold")
        spin = first.post("spin 100000 50")
        check(not farm.answered(spin, 1), "a GPU of the gang is not waited for")
        second.ok("context reset")
        check(farm.answered(spin, 5), "a GPU without a context of the gang is waited for")
        first.ok("sync")
        second.ok("open 1")
        between.ok("spin 100000")  # else the first one's turn would go on
        spin = first.post("spin 100000 50")
        check(not farm.answered(spin, 1), "a GPU that has a context again is not waited for")
        other.ok("release")
        equal(farm.numbers(spin.result(farm.SOON))[0], 0, "the last launch")
        for worker in workers:
            worker.ok("spin 100000 5")
            worker.ok("sync")
        equal(books(place), (0, 0), "overruns and revocations")


def submitted(place):
    """What the first member says it had submitted in a turn by its end."""
    name, = (n for n in os.listdir(place.ring) if n.endswith(".gang"))
    with open(os.path.join(place.ring, name), "rb") as file:
        return PLACES.number(file.read(), "gang.member[0].submitted")


def check_after_overrun():
    """What outlasted an earlier turn, and has ended since, is not of the next one: others of the gang
    would let as much more through."""
    with farm.Farm(QUANTUM="300ms", ALLOWANCE="100ms") as place:
        a, b = place.worker("a", GANG="job"), place.worker("b")
        loop = b.post("loop 3000 1000000 0")
        a.ok("hold")
        until = time.monotonic() + farm.SOON
        while not place.tenant("a")["overruns"] and time.monotonic() < until:
            time.sleep(0.01)
        spin = a.post("spin 100000", thread=1)
        time.sleep(0.02)
        a.ok("release")
        equal(farm.numbers(spin.result(farm.SOON))[0], 0, "the next launch")
        a.ok("sync")
        time.sleep(0.1)
        equal(submitted(place), 1, "submissions in the turn behind an overrun")
        equal(farm.numbers(loop.result(farm.SOON))[0], 0, "the neighbour's result")


def short_pauses():
    """The gang's part where one of its GPUs is another client's too, and the other its own alone."""
    with farm.Farm(sim={"DEVICES": 2, "SWITCH": "0"}, QUANTUM="20ms") as place:
        sees = [("env", "CUDA_VISIBLE_DEVICES=%d" % device) for device in (0, 1)]
        first = place.worker("a", prefix=sees[0], GANG="job")
        place.worker("a", prefix=sees[1], GANG="job")
        other = place.worker("c", prefix=sees[1])
        farm.together([(first, "bursts 3000 1000000 1 200"), (other, "loop 3000 500000 0")], 40)
        mine, its = (sum(r.end - r.start for r in place.trace().of(tag)) for tag in "ac")
        print("  gaps of 0.2 ms between a gang's kernels: it has %.1f %%" % (100 * mine / (mine + its)))
        return mine > its / 2


def check_short_pauses():
    """Short gaps do not cost a gang its turn, also where it is alone on the GPU that has them."""
    farm.holds(short_pauses, 3, "short gaps cost a gang its turn")


farm.run(check_one_process, check_two_processes, check_late_work, check_late_process, check_without,
         check_neighbour, check_killed, check_stopped, check_file_gone, check_unused_device,
         check_after_overrun, check_short_pauses, check_context_gone)
