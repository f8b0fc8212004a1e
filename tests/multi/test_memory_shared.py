#!/usr/bin/env python3
"""Memory that several processes have: its maker pays, who opens it does not. When the maker lets go
or dies first it is nobody's until the last importer does: the tenant's orphaned figure is the
device's own, and both return to nothing."""
# timeout: 120, beside others
import os
import socket
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, check, equal

BYTES = 32 * MIB


class Pair:
    """A worker and the socket through which descriptors reach it."""

    def __init__(self, place, tag, tenant="t", **settings):
        self.near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.worker = place.worker(tag, TENANT=tenant, popen={"pass_fds": [far.fileno()]},
                                   **settings)
        self.socket = far.fileno()
        self.far = far

    def ok(self, words):
        answer = self.worker.ask(words).split()
        equal(answer[0], "0", "%s: %s" % (self.worker.tag, words[:40]))
        return answer[1] if len(answer) > 1 else None

    def give(self, words, other):
        """A command that sends a descriptor, which goes on to the other."""
        self.ok("%s %d" % (words, self.socket))
        _, fds, _, _ = socket.recv_fds(self.near, 1, 1)
        socket.send_fds(other.near, [b"x"], fds)
        os.close(fds[0])

    def orphaned(self):
        return self.worker.ok("handed")[3]


class Way:
    """One way of sharing: make, share (what `open` needs), open, close, free."""


class Ipc(Way):
    def make(self, a):
        return a.ok("share-alloc %d" % BYTES)

    def share(self, a, made, b):
        return a.ok("ipc-get %s" % made)

    def open(self, b, shared):
        return b.ok("ipc-open %s" % shared)

    def close(self, b, opened):
        b.ok("ipc-close %s" % opened)

    def free(self, a, made):
        a.ok("share-free %s" % made)


class Descriptor(Way):
    kind = "fd"

    def make(self, a):
        return a.ok("vmm-make %d %s" % (BYTES, self.kind))

    def share(self, a, made, b):
        a.give("vmm-give %s fd" % made, b)

    def open(self, b, shared):
        got = b.ok("vmm-take fd %d" % b.socket)
        b.ok("vmm-map %s %d" % (got, BYTES))
        return got

    def close(self, b, opened):
        b.ok("vmm-unmap %s" % opened)
        b.ok("vmm-release %s" % opened)

    def free(self, a, made):
        a.ok("vmm-release %s" % made)


class Fabric(Descriptor):
    kind = "fabric"

    def share(self, a, made, b):
        return a.ok("vmm-give %s fabric" % made)

    def open(self, b, shared):
        got = b.ok("vmm-take fabric %s" % shared)
        b.ok("vmm-map %s %d" % (got, BYTES))
        return got


class External(Descriptor):
    def open(self, b, shared):
        return b.ok("external-take %d %d" % (b.socket, BYTES))

    def close(self, b, opened):
        b.ok("external-put %s" % opened)


class Pool(Way):
    def make(self, a):
        self.pool = a.ok("pool-make")
        return a.ok("pool-alloc %s %d" % (self.pool, BYTES))

    def share(self, a, made, b):
        a.give("pool-give %s" % self.pool, b)
        return a.ok("pool-pointer %s" % made)

    def open(self, b, shared):
        pool = b.ok("pool-take %d" % b.socket)
        return b.ok("pool-open %s %s" % (pool, shared))

    def close(self, b, opened):
        b.ok("pool-free %s" % opened)
        b.ok2("sync")

    def free(self, a, made):
        a.ok("pool-free %s" % made)
        a.ok2("sync")


Pair.ok2 = lambda self, words: self.worker.ok(words)
WAYS = [Ipc, Descriptor, Fabric, External, Pool]


def books(place, tenant="t"):
    t = place.tenant(tenant)
    return dict(used=t["memory_used_bytes"], orphaned=t["memory_orphaned_bytes"],
                exported=t["memory_exported_bytes"], imported=t["memory_imported_bytes"])


def agree(place, wanted, words, tenant="t"):
    found = books(place, tenant)
    equal({k: found[k] for k in wanted}, wanted, words)


def until(good, words, seconds=5):
    end = time.monotonic() + seconds
    while not good() and time.monotonic() < end:
        time.sleep(0.02)
    check(good(), words)


def check_way(way, end, tenant="t"):
    """Shared with one or two, then ended in the way that `end` does."""
    name = "%s, %s, %s" % (way.__name__, end.__name__, tenant)
    way = way()
    with farm.Farm(MEM_LIMIT=GIB) as place:
        a, b = Pair(place, "a"), Pair(place, "b", tenant)
        made = way.make(a)
        agree(place, dict(used=BYTES, orphaned=0, exported=0, imported=0), name + ": made")
        opened = way.open(b, way.share(a, made, b))
        agree(place, dict(used=BYTES, exported=BYTES), name + ": shared")
        agree(place, dict(imported=BYTES), name + ": open", tenant)
        if tenant != "t":
            agree(place, dict(used=0), name + ": in the importer's tenant", tenant)
        end(place, way, a, b, made, opened, name, tenant)
        until(lambda: b.orphaned() == 0 if b.worker.process.poll() is None else a.orphaned() == 0,
              name + ": orphaned on the device in the end")
        equal(books(place)["orphaned"], 0, name + ": orphaned in the end")


def plain(place, way, a, b, made, opened, name, tenant):
    way.close(b, opened)
    agree(place, dict(imported=0), name + ": closed", tenant)
    agree(place, dict(used=BYTES, orphaned=0), name + ": closed")
    way.free(a, made)
    agree(place, dict(used=0, exported=0, orphaned=0), name + ": freed")


def maker_first(place, way, a, b, made, opened, name, tenant):
    """Nobody's: in the exporter's tenant as long as an importer of the same tenant has it."""
    way.free(a, made)
    equal(b.orphaned(), BYTES, name + ": orphaned on the device")
    agree(place, dict(used=0, exported=0, orphaned=BYTES if tenant == "t" else 0),
          name + ": freed by its maker")
    way.close(b, opened)
    agree(place, dict(orphaned=0), name + ": closed")


def maker_killed(place, way, a, b, made, opened, name, tenant):
    a.worker.kill()
    agree(place, dict(used=0, exported=0, orphaned=BYTES if tenant == "t" else 0),
          name + ": its maker killed")
    until(lambda: b.orphaned() == BYTES, name + ": orphaned on the device")
    way.close(b, opened)
    agree(place, dict(orphaned=0, imported=0), name + ": closed")


def both_killed(place, way, a, b, made, opened, name, tenant):
    c = Pair(place, "c")
    a.worker.kill()
    until(lambda: c.orphaned() == BYTES, name + ": orphaned on the device")
    b.worker.kill()
    agree(place, dict(used=0, orphaned=0, imported=0), name + ": both killed")
    until(lambda: c.orphaned() == 0, name + ": orphaned after both are torn down")
    b.worker = c.worker


def importer_killed(place, way, a, b, made, opened, name, tenant):
    b.worker.kill()
    agree(place, dict(used=BYTES, exported=BYTES, orphaned=0, imported=0), name + ": importer killed")
    way.free(a, made)
    agree(place, dict(used=0, exported=0, orphaned=0), name + ": freed")


def check_ways():
    for way in WAYS:
        for end in (plain, maker_first, maker_killed, both_killed, importer_killed):
            check_way(way, end)


def check_other_tenant():
    for way in WAYS:
        check_way(way, plain, "other")
        check_way(way, maker_first, "other")


def check_two_importers():
    """Open in two: orphaned once, until both have closed it."""
    with farm.Farm(MEM_LIMIT=GIB) as place:
        a, b, c = Pair(place, "a"), Pair(place, "b"), Pair(place, "c")
        way = Ipc()
        made = way.make(a)
        shared = way.share(a, made, b)
        second, third = way.open(b, shared), way.open(c, shared)
        agree(place, dict(used=BYTES, exported=BYTES, imported=2 * BYTES), "open in two")
        a.worker.kill()
        until(lambda: c.orphaned() == BYTES, "orphaned on the device")
        agree(place, dict(used=0, orphaned=BYTES), "its maker killed")
        way.close(b, second)
        equal(c.orphaned(), BYTES, "closed by one, on the device")
        agree(place, dict(orphaned=BYTES, imported=BYTES), "closed by one")
        way.close(c, third)
        equal(c.orphaned(), 0, "closed by both, on the device")
        agree(place, dict(orphaned=0, imported=0), "closed by both")


def check_own_import():
    """A process that imports what it has exported: one piece, paid once; its own handle released,
    it is shown as with another importer, since a driver does not tell whose memory is imported."""
    for way in (Descriptor(), Fabric()):
        with farm.Farm(MEM_LIMIT=GIB) as place:
            a = Pair(place, "a")
            made = way.make(a)
            again = way.open(a, way.share(a, made, a))
            equal(books(place)["used"], BYTES, "imported by its maker")
            equal(a.worker.ok("handed")[0], BYTES, "the device's figure")
            way.free(a, made)
            found = books(place)
            equal(found["used"] + found["orphaned"], a.worker.ok("handed")[0] + a.orphaned(),
                  "its own handle released")
            way.close(a, again)
            until(lambda: a.worker.ok("handed")[2] < 300 * MIB, "the device's memory comes back")
            agree(place, dict(used=0, orphaned=0, imported=0), "both gone")


def check_bare():
    """Without the library nobody pays: what is looked at is the device's own."""
    with farm.Farm(preload=False) as place:
        a, b = Pair(place, "a"), Pair(place, "b")
        way = Ipc()
        made = way.make(a)
        opened = way.open(b, way.share(a, made, b))
        way.free(a, made)
        equal(b.orphaned(), BYTES, "orphaned on the device")
        way.close(b, opened)
        equal(b.orphaned(), 0, "orphaned on the device")


farm.run(check_ways, check_other_tenant, check_two_importers, check_own_import, check_bare)
