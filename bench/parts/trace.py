"""Stretches of work on the device, and what can be said about them.

On the simulated device they come from its own trace, on hardware from the device clock that the
load client's kernels note. Times are nanoseconds of one clock for all clients.
"""
import collections

# `busy`: how much of start..end the kernel really ran; less where it was interrupted. `last`: it is
# the last stretch of its kernel.
Run = collections.namedtuple("Run", "start end who busy last", defaults=(True,))
Turn = collections.namedtuple("Turn", "who start end")


def read_simulated(path):
    """The kernels' stretches: X start end dev client pid ctx stream kind name submit seq piece."""
    runs = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if fields[0] == "X" and line.endswith("\n") and fields[8] == "kernel":
                start, end = int(fields[1]), int(fields[2])
                runs.append(Run(start, end, fields[4], end - start, fields[12].endswith("$")))
    return sorted(runs)


def read_stamps(files, kernel_ns):
    runs = []
    for who, path in files.items():
        with open(path, encoding="utf-8") as file:
            for line in file:
                start, end = (int(word) for word in line.split())
                runs.append(Run(start, end, who, min(end - start, kernel_ns)))
    return sorted(runs)


def common(runs, warm_ns):
    """The time in which all clients were at work, without the first warm_ns of it."""
    first, last = {}, {}
    for run in runs:
        first.setdefault(run.who, run.start)
        last[run.who] = max(last.get(run.who, 0), run.end)
    return max(first.values()) + warm_ns, min(last.values())


def ends(runs, who):
    """When each kernel of a client ended, in order."""
    return sorted(run.end for run in runs if run.who == who and run.last)


def busy(runs, window):
    """The part of the window in which the device worked, in percent."""
    total = 0.0
    for run in runs:
        inside = min(run.end, window[1]) - max(run.start, window[0])
        if inside > 0 and run.end > run.start:
            total += run.busy * inside / (run.end - run.start)
    return 100 * total / (window[1] - window[0])


def turns(runs):
    """Runs of one client with none of another's between them are a turn."""
    found = []
    for run in runs:
        if found and found[-1].who == run.who:
            found[-1] = found[-1]._replace(end=max(found[-1].end, run.end))
        else:
            found.append(Turn(run.who, run.start, run.end))
    return found


def gaps(runs, window):
    """From the last end of one client's turn to the first start of the next one's."""
    inside = [r for r in runs if window[0] <= r.start and r.end <= window[1]]
    found = turns(inside)
    return [after.start - before.end for before, after in zip(found, found[1:])]


def shares(found, begin, end):
    """Each client's part of the occupied time from begin to end, in percent. A turn occupies the
    device from its first start to its last end."""
    had = collections.Counter()
    for turn in found:
        inside = min(turn.end, end) - max(turn.start, begin)
        if inside > 0:
            had[turn.who] += inside
    total = sum(had.values())
    return {who: 100 * ns / total for who, ns in had.items()}


def error(got, asked):
    return max(abs(got.get(who, 0) - part) for who, part in asked.items())


def share_error(runs, asked, slices, quantum_ns):
    """How far the parts are from those asked, in percentage points: the worst at the end of any
    turn from the given number of slices on, counted from when all clients have begun. A turn of
    several quanta is as many slices."""
    begin, last = common(runs, 0)
    found = [t for t in turns(runs) if t.start >= begin and t.end <= last]
    worst, count = None, 0
    for turn in found:
        count += max(1, round((turn.end - turn.start) / quantum_ns))
        if count >= slices:
            worst = max(worst or 0, error(shares(found, found[0].start, turn.end), asked))
    return worst


def ideal_error(asked, slices, until):
    """The same for slices that are all equal, the least served by weight first."""
    served = dict.fromkeys(asked, 0)
    worst = 0.0
    for n in range(1, until + 1):
        served[min(asked, key=lambda who: served[who] / asked[who])] += 1
        if n >= slices:
            worst = max(worst, error({w: 100 * s / n for w, s in served.items()}, asked))
    return worst
