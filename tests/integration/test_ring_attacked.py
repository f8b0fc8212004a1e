#!/usr/bin/env python3
"""What somebody with write permission may do to a ring's file under running clients: take its mode away,
put something else in its place, write random bytes into it. Nobody crashes, hangs or is left
waiting for long, and once the file is sound again, or gone, all of it works as before. (Shortening
the file is a documented limit.) SCALE=10 attacks ten times as often."""
# timeout: 120
import os
import random
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MIB, MS, OUT_OF_MEMORY, PLACES, SECOND, check, equal

CAP = 64 * MIB
ATTACKS = 1000 * int(os.environ.get("SCALE") or 1)
# What comes before the token is checked at the join, or is the ring's settings; those and the
# tenants' (from weight to mode) may ask for long waits, a weight of 1 beside 10000, say.
UUID, TOKEN = PLACES["segment.uuid"].start, PLACES["segment.token"].start
SLOT, TENANT = PLACES["segment.slot[0]"], PLACES["segment.tenant[0]"]
HOT = SLOT.start + 16 * (SLOT.stop - SLOT.start)  # with the first slots
SETTINGS = slice(PLACES["tenant.weight"].start, PLACES["tenant.mode"].stop)
LONGEST = 2 * SECOND  # without work, for who always wants some


def exclusive(place, tags, since, words):
    """Whether these clients took turns after `since`; how many turns."""
    trace = place.trace()
    found = farm.overlaps([c for c in trace.commands() if c.submit > since and c.client in tags])
    check(not found, "%s: overlaps: %s" % (words, [farm.describe(o) for o in found[:3]]))
    turns = [t for t in trace.turns() if t.start > since and t.client in tags]
    check(len(turns) > 20, "%s: only %d turns" % (words, len(turns)))
    return trace


def refused(worker, words):
    equal(worker.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0], OUT_OF_MEMORY, words + ": its cap")


def met(place, workers):
    try:
        return {w.pid for w in workers} <= {c["pid"] for c in place.gpu()["clients"]}
    except (AssertionError, IndexError):
        return False


def wait_until_met(place, workers, words):
    until = time.monotonic() + farm.SOON
    while not met(place, workers):
        if time.monotonic() > until:
            raise TimeoutError(words + ": the clients never meet")
        time.sleep(0.1)


def as_user(place, tag, uid, **settings):
    """A worker that modes mean something to; as the tests' own user where that is not root."""
    popen = {"user": uid, "group": uid, "extra_groups": []} if os.getuid() == 0 else {}
    return place.worker(tag, opened=False, popen=popen, **settings)


def open_to_all(place):
    os.chmod(place.place, 0o755)
    place.worker("first").end()
    os.chmod(place.device, 0o777)
    for name in os.listdir(place.device):
        os.chmod(os.path.join(place.device, name), 0o666)


def check_modes():
    """Those inside go on; who comes is told why it cannot join, and its own cap holds."""
    if os.getuid() == 0 and not os.stat(farm.LINKED).st_mode & 0o001:
        print("the build is not open to other users: modes are not tried")
        return
    for mode in (0o444, 0o000):
        words = "mode %03o" % mode
        with farm.Farm(MEM_LIMIT=CAP, ALLOWANCE="200ms", QUANTUM="10ms", sim={"LINGER": "5s"}) as place:
            open_to_all(place)
            a, b, c = (as_user(place, tag, 20001 + i) for i, tag in enumerate("abc"))
            for worker in (a, b, c):
                worker.ok("open")
            loops = [w.post("loop 4000 500000 8") for w in (a, b)]
            time.sleep(0.3)
            os.chmod(place.ring_file(), mode)
            since = farm.now()
            d = as_user(place, "d", 20004)
            d.ok("open")
            check("Permission" in d.log(), "%s: why a newcomer is alone: %r" % (words, d.log()))
            refused(d, words)
            time.sleep(1)
            exclusive(place, "ab", since, words)
            killed = farm.now()
            c.ok("hold")
            c.kill()  # its lock cannot be looked at: it is revoked like one that does not move
            time.sleep(1)
            after = place.trace_until(
                lambda t: {"a", "b"} <= {r.client for r in t.commands() if r.submit > killed + 500 * MS},
                words + ": work after a death")
            late = min(r.submit for r in after.commands() if r.client in "ab" and r.submit > killed + 20 * MS)
            print("%s: after a death the others go on after %.0f ms" % (words, (late - killed) / MS))
            check(late - killed < 900 * MS, "%s: %.0f ms" % (words, (late - killed) / MS))
            os.chmod(place.ring_file(), 0o666)
            e = as_user(place, "e", 20005)
            e.ok("open")
            equal(e.log(), "", words + ": what a client says afterwards")
            wait_until_met(place, (a, b, e), words)
            e.ok("spin 1000 10")
            e.ok("sync")
            for loop in loops:
                equal(farm.numbers(loop.result(farm.SOON))[0], 0, words + ": launches")
            equal([w.log() for w in (a, b)], ["", ""], words + ": what those inside said")


def things(place):
    """What may lie in the ring's place: (words, how to put it at a path)."""
    with open(place.ring_file(), "rb") as good:
        ring = good.read()
    noise = random.Random(1).randbytes(len(ring))
    another = ring[:UUID] + bytes([ring[UUID] ^ 1]) + ring[UUID + 1:]

    def file(content):
        def put(path):
            with open(path, "wb") as out:
                out.write(content)
            os.chmod(path, 0o666)
        return put

    return [("random bytes", file(noise)), ("text", file(b"hello\n")),
            ("another GPU's ring", file(another)), ("a directory", os.mkdir), ("a pipe", os.mkfifo),
            ("a link", lambda path: os.symlink("/dev/null", path))]


def check_something_else():
    """They keep the ring they have, which is nobody else's any more, until there is another."""
    with farm.Farm(MEM_LIMIT=CAP, QUANTUM="10ms") as place:
        a, b = place.worker("a"), place.worker("b")
        a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
        path = place.ring_file()
        for words, put in things(place):
            loops = [w.post("loop 2500 500000 8") for w in (a, b)]
            time.sleep(0.2)
            put(path + ".other")
            if os.path.isdir(path + ".other"):
                os.unlink(path)
            os.rename(path + ".other", path)
            since = farm.now()
            newcomer = place.worker("n")
            equal(len(newcomer.log().splitlines()), 1, "%s: a newcomer's lines: %r" % (
                words, newcomer.log()))
            refused(newcomer, words)
            newcomer.end()
            time.sleep(1.5)
            exclusive(place, "ab", since, words)
            equal(a.ok("info"), [CAP // 2, CAP], words + ": figures")
            for loop in loops:
                equal(farm.numbers(loop.result(farm.SOON))[0], 0, words + ": launches")
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)
            begun = time.monotonic()
            wait_until_met(place, (a, b), words)
            print("%s: met again after %.1f s" % (words, time.monotonic() - begun))
            equal([place.tenant(t)["memory_used_bytes"] for t in "ab"], [CAP // 2, 0], words + ": bytes")
        for worker in (a, b):
            said = len(worker.log().splitlines())
            check(said <= 4 * len(things(place)), "%s said %d lines" % (worker.tag, said))


def attack(file, size, seed):
    """Some runs of random bytes, half of them where the token and the first slots are."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 16)):
        at = chance.randrange(TOKEN, HOT if chance.random() < 0.5 else size)
        count = min(chance.choice((1, 2, 4, 8, 64)), size - at)
        words = chance.randbytes(count) if chance.random() < 0.7 else bytes(count)
        place = (at - TENANT.start) % (TENANT.stop - TENANT.start)
        if at < TENANT.start or place >= SETTINGS.stop or place + count <= SETTINGS.start:
            os.pwrite(file, words, at)


def newcomer_works(place, seed):
    """One that comes in the middle of it answers, whatever it is answered."""
    worker = place.worker("n%d" % seed, opened=False, LOG="error")
    for words in ("open", "alloc cuMemAlloc_v2 4096", "info", "spin 1000 5", "sync"):
        if not farm.answered(worker.post(words), farm.SOON):
            raise TimeoutError("attack %d: a newcomer hangs in '%s'" % (seed, words))
    equal(worker.end(), 0, "attack %d: a newcomer's end" % seed)


def silence(trace, tag, start, end):
    times = [start, *sorted(c.submit for c in trace.commands()
                            if c.client == tag and start < c.submit < end), end]
    return max(later - earlier for earlier, later in zip(times, times[1:]))


def check_random_bytes():
    tags = ["a", "b", "c", "d"]
    with farm.Farm(MEM_LIMIT=CAP, QUANTUM="5ms", ALLOWANCE="100ms", LOG="error") as place:
        workers = [place.worker(tag) for tag in tags]
        length = 20 + 0.03 * ATTACKS
        loops = [w.post("loop %d 300000 16" % (length * 1000)) for w in workers]
        time.sleep(0.5)
        begun, size = farm.now(), os.path.getsize(place.ring_file())
        file = os.open(place.ring_file(), os.O_RDWR)
        for seed in range(ATTACKS):
            attack(file, size, seed)
            time.sleep(0.01)
            if seed % 50 == 49:
                newcomer_works(place, seed)
            for worker in workers:
                if worker.process.poll() is not None:
                    raise farm.Gone("attack %d: %s ended: %s" % (seed, worker.tag, worker.log()))
        ended = farm.now()
        os.close(file)
        trace = place.trace()
        longest = {tag: silence(trace, tag, begun, ended) for tag in tags}
        print("%d attacks in %.1f s; the longest time without work: %s ms" % (
            ATTACKS, (ended - begun) / SECOND,
            ", ".join("%s %.0f" % (tag, ns / MS) for tag, ns in longest.items())))
        for tag, ns in longest.items():
            check(ns < LONGEST, "%s had no work for %.1f s" % (tag, ns / SECOND))
        os.unlink(place.ring_file())
        wait_until_met(place, workers, "a new file after the attacks")
        time.sleep(0.5)
        since = farm.now()
        late = place.worker("late")
        loops.append(late.post("loop 2500 300000 16"))
        time.sleep(2.5)
        trace = exclusive(place, [*tags, "late"], since, "in a new file")
        share = farm.shares(trace.turns(), since, since + 2 * SECOND)
        print("in a new file: %s" % ", ".join("%s %.1f" % (t, share[t]) for t in sorted(share)))
        for tag in tags:
            farm.between(share[tag], 15, 25, "in a new file: the share of " + tag)
            equal(place.tenant(tag)["memory_used_bytes"], 0, "in a new file: bytes of " + tag)
        for worker in workers:
            worker.kill()


farm.run(check_modes, check_something_else, check_random_bytes)
