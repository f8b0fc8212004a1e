#!/usr/bin/env python3
"""`cuslice set` and `cuslice reap` under live programs: caps lowered, raised and given back without
a restart, weights and slices seen in the device's trace, what is set outlives joins and ends."""
# timeout: 150
import os
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, MS, OUT_OF_MEMORY, check, equal

DEVICE = 8 * GIB
# What contexts cost is another test's matter.
SIM = {"MEMORY": DEVICE, "CONTEXT_BYTES": 0}


def tool(place, *words, wrap=list, **environment):
    """(exit code, standard output, standard error) of the tool on the farm's rings."""
    env = place.environment("tool", preload=False, TENANT=None, **environment)
    command = [farm.TOOL, words[0], "--dir", place.ring, *[str(w) for w in words[1:]]]
    done = subprocess.run(wrap(command), text=True, capture_output=True, timeout=farm.SOON, env=env)
    return done.returncode, done.stdout, done.stderr


def change(place, *words, **environment):
    """`cuslice set`, which must succeed; what it says."""
    code, out, err = tool(place, "set", *words, **environment)
    equal((code, err), (0, ""), "cuslice set %s" % " ".join(map(str, words)))
    return out


def alloc(worker, size):
    return worker.numbers("alloc cuMemAlloc_v2 %d" % size)


def check_lowered():
    """Below what is used: nothing taken away, nothing new, until it fits; raised: at once."""
    with farm.Farm(sim=SIM, MEM_LIMIT=GIB) as place:
        a, other = place.worker("a"), place.worker("other")
        big = a.ok("alloc cuMemAlloc_v2 %d" % (400 * MIB))[0]
        small = a.ok("alloc cuMemAlloc_v2 %d" % (200 * MIB))[0]
        held = [m for m in place.trace().memory if m.client == "a"][-1].client_total
        said = change(place, "--tenant", "a", "--mem", "500Mi")
        check("memory cap 500Mi (was 1Gi)" in said, "what was changed: " + said)
        check("uses 600Mi, above the new cap" in said, "that it does not fit is not told: " + said)
        equal(a.ok("info"), [0, 500 * MIB], "free and total below what is used")
        equal(a.ok("total"), [500 * MIB], "cuDeviceTotalMem")
        equal(alloc(a, 1), [OUT_OF_MEMORY, 0], "one byte")
        equal([m for m in place.trace().memory if m.client == "a"][-1].client_total, held,
              "what it has on the device")
        check(held >= 600 * MIB, "what it had: %d" % held)
        a.ok("spin 1000")
        a.ok("sync")
        equal(other.ok("info"), [GIB, GIB], "another tenant's figures")
        a.ok("free %d" % small)
        equal(a.ok("info"), [100 * MIB, 500 * MIB], "as soon as it fits")
        equal(alloc(a, 100 * MIB + 1)[0], OUT_OF_MEMORY, "more than fits")
        a.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        said = change(place, "--tenant", "a", "--mem", "2Gi")
        check("above" not in said, "a cap that fits: " + said)
        a.ok("alloc cuMemAlloc_v2 %d" % GIB)
        equal(a.ok("info"), [2 * GIB - GIB - 500 * MIB, 2 * GIB], "raised")
        a.ok("free %d" % big)


def check_forms():
    """The forms and what they come to, as a live program sees them (cases 18 and 20)."""
    with farm.Farm(sim=SIM) as place:
        a = place.worker("a")
        uuid = re.search(r"GPU-[0-9a-f-]{36}", place.ring_file()).group()
        for text, wanted in (("4Gi", 4 * GIB), ("4096m", 4 * GIB), ("4294967296", 4 * GIB),
                             ("25%", 2 * GIB), ("99999999999G", DEVICE), ("0", 0), ("0m", 0),
                             ("0:3Gi,1:1Gi", 3 * GIB), (uuid + ":5Gi", 5 * GIB), ("none", DEVICE)):
            change(place, "--tenant", "a", "--mem", text)
            equal(a.ok("total"), [wanted], "total with '%s' set" % text)
            if wanted == 0:
                equal(alloc(a, 1)[0], OUT_OF_MEMORY, "one byte with '%s' set" % text)
        change(place, "--tenant", "a", "--mem", "auto", REPLICAS=4)
        equal(a.ok("total"), [2 * GIB], "auto of four")
        for text in ("abc", "-1", "12 apples", "1e3", "", "4Gi,", "1Gi,2Gi", "%"):
            code, out, err = tool(place, "set", "--tenant", "a", "--mem=" + text)
            equal((code, out), (2, ""), "set --mem='%s'" % text)
            check("'%s'" % text in err and "4Gi" in err and "25%" in err, "accepted forms: " + err)
        code, out, err = tool(place, "set", "--tenant", "a", "--mem", "auto")
        equal((code, out), (2, ""), "auto without a number of replicas")
        check("CUSLICE_REPLICAS" in err, "what is missing: " + err)
        code, out, err = tool(place, "set", "--tenant", "a", "--mem", "1:1Gi")
        equal(code, 1, "a cap for another GPU only")
        equal(a.ok("total"), [2 * GIB], "nothing of this has changed it")


def check_unknown():
    with farm.Farm() as place:
        a = place.worker("a")
        a.ok("total")
        for words in (("--tenant", "b", "--weight", "5"), ("--tenant", "b", "--mem", "1Gi"),
                      ("--gpu", "0", "--tenant", "b", "--mem", "1Gi")):
            code, out, err = tool(place, "set", *words)
            equal((code, out), (1, ""), "set %s" % (words,))
            check("no tenant 'b'" in err and "known are a" in err, "the names known: " + err)
        for gpu in ("1", "GPU-dead", "99999999"):
            code, out, err = tool(place, "set", "--gpu", gpu, "--tenant", "a", "--weight", "5")
            equal((code, out), (1, ""), "set --gpu " + gpu)
        equal(place.tenant("a")["weight"], 100, "weight after all that")


def check_pinned():
    """What is set stands against joiners, also after the last client has gone; then given back."""
    with farm.Farm(sim=SIM, TENANT="t", QUANTUM="20ms") as place:
        a = place.worker("a", MEM_LIMIT=GIB, WEIGHT=50)
        change(place, "--tenant", "t", "--mem", "300Mi", "--weight", "70")
        change(place, "--quantum", "7ms")
        b = place.worker("b", MEM_LIMIT=GIB, WEIGHT=50)
        for words in ("memory cap of 314572800 bytes", "already has weight 70", "[ring-settings]"):
            equal(b.log().count(words), 1, "'%s' in what the joiner said: %s" % (words, b.log()))
        equal(b.ok("total"), [300 * MIB], "the joiner's total")
        a.end()
        b.end()
        c = place.worker("c", MEM_LIMIT=2 * GIB, WEIGHT=20)
        equal(c.ok("total"), [300 * MIB], "the next first one's total")
        equal(c.log().count("[tenant-differs]"), 2, "what it said: " + c.log())
        tenant, gpu = place.tenant("t"), place.gpu()
        equal((tenant["weight"], gpu["quantum_seconds"]), (70, 0.007), "weight and quantum")
        equal((sorted(tenant["set_by_admin"]), gpu["set_by_admin"]), (["mem", "weight"], ["quantum"]),
              "what status says is set")
        said = change(place, "--tenant", "t", "--mem", "default", "--unset", "weight")
        check("memory cap 2Gi, as the environment asks (was 300Mi)" in said, "given back: " + said)
        equal(c.ok("total"), [2 * GIB], "given back: what the one that is there asks")
        equal((place.tenant("t")["weight"], place.tenant("t")["set_by_admin"]), (20, []), "and weight")
        change(place, "--unset", "quantum")
        equal((place.gpu()["quantum_seconds"], place.gpu()["set_by_admin"]), (0.02, []), "and quantum")
        d = place.worker("d", MEM_LIMIT=2 * GIB, WEIGHT=20)
        equal(d.log(), "", "a joiner that agrees says nothing")


def check_process_cap():
    with farm.Farm(sim=SIM, TENANT="t") as place:
        a, b = place.worker("a", PROCESS_MEM_LIMIT=300 * MIB), place.worker("b")
        number = b.ok("alloc cuMemAlloc_v2 %d" % (200 * MIB))[0]
        said = change(place, "--tenant", "t", "--process-mem", "100Mi")
        check("cap on each process 100Mi (was each one's own)" in said, said)
        check("process %d (worker) uses 200Mi, above the new cap" % b.pid in said, said)
        check("process %d " % a.pid not in said, "one that fits is told: " + said)
        for each in (a, b):
            equal(each.ok("total"), [100 * MIB], "%s's total" % each.tag)
            equal(alloc(each, 100 * MIB + 1)[0], OUT_OF_MEMORY, "%s: above it" % each.tag)
        equal(b.ok("info"), [0, 100 * MIB], "b's figures")
        equal([c["process_memory_limit_bytes"] for c in place.gpu()["clients"]], [100 * MIB] * 2,
              "the caps in force, in status")
        a.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        b.ok("free %d" % number)
        b.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        change(place, "--tenant", "t", "--unset", "process-mem")
        equal(a.ok("total"), [300 * MIB], "a's own cap again")
        a.ok("alloc cuMemAlloc_v2 %d" % (200 * MIB))
        equal(alloc(a, 1)[0], OUT_OF_MEMORY, "above its own")
        b.ok("alloc cuMemAlloc_v2 %d" % GIB)


def check_ceiling():
    """A ceiling of the node binds environments; the administrator may go beyond it, and is told."""
    with farm.Farm(sim=SIM) as place:
        path = os.path.join(place.ring, "defaults")
        with open(path, "w") as file:
            file.write("CUSLICE_MEM_LIMIT_MAX=1Gi\nCUSLICE_WEIGHT_MAX=60\n")
        os.chmod(path, 0o644)
        a = place.worker("a")
        equal(a.ok("total"), [GIB], "under the ceiling")
        said = change(place, "--tenant", "a", "--mem", "3Gi", "--weight", "500")
        check("above the node's ceiling of 1Gi" in said, "the cap's ceiling is not told: " + said)
        check("above the node's ceiling of 60" in said, "the weight's ceiling is not told: " + said)
        equal(a.ok("total"), [3 * GIB], "beyond the ceiling")
        check("ceiling" not in change(place, "--tenant", "a", "--mem", "512Mi"), "below it")
        change(place, "--tenant", "a", "--mem", "default")
        equal(a.ok("total"), [GIB], "given back: the ceiling again")


def check_weight_and_quantum():
    """Both seen in the trace, before and after, in one run of the same two programs."""
    with farm.Farm(QUANTUM="40ms") as place:
        workers = [place.worker(tag, WEIGHT=100) for tag in ("a", "b")]
        futures = [w.post("loop 9000 500000 0") for w in workers]
        time.sleep(3)
        first = farm.now()
        change(place, "--tenant", "a", "--weight", "300")
        change(place, "--quantum", "10ms")
        second = farm.now()
        for future in futures:
            farm.numbers(future.result(farm.SOON))
        trace = place.trace()
        start, end = farm.window(trace, ("a", "b"))
        before, after = (start, first), (second + 500 * MS, end)
        found = [farm.shares(trace.turns(), *span).get("a", 0) for span in (before, after)]
        lengths = [sorted(t.end - t.start for t in trace.turns() if lo <= t.start and t.end <= hi)
                   for lo, hi in (before, after)]
        median = [each[len(each) // 2] / MS for each in lengths]
        print("a's share %.1f %%, then %.1f %%; turns of %.1f ms, then %.1f ms" % (*found, *median))
        farm.between(found[0], 42, 58, "a's share with equal weights")
        farm.between(found[1], 67, 83, "a's share with three times the weight")
        farm.between(median[0], 25, 60, "length of a turn with slices of 40 ms")
        # Three to one, a's turns may follow each other: the least one is b's.
        turns = sorted(t.end - t.start for t in trace.turns()
                       if t.client == "b" and after[0] <= t.start and t.end <= after[1])
        farm.between(turns[len(turns) // 2] / MS, 5, 18, "length of b's turn with slices of 10 ms")


def check_limit_and_priority():
    """A limit given to one that is alone, then taken back; then a class above a busy neighbour's."""
    with farm.Farm(QUANTUM="20ms") as place:
        a = place.worker("a")
        future = a.post("loop 14000 500000 4")
        time.sleep(1)
        limited = farm.now() + 500 * MS
        change(place, "--tenant", "a", "--limit", "40")
        time.sleep(2.5)
        freed = farm.now()
        change(place, "--tenant", "a", "--unset", "limit")
        time.sleep(0.5)
        b = place.worker("b")
        change(place, "--tenant", "b", "--priority", "high")
        above = farm.now()
        b.ok("loop 2000 500000 4")
        b.ok("sync")
        until = farm.now()
        farm.numbers(future.result(farm.SOON))
        trace = place.trace()
        busy = farm.shares(trace.turns(), above + 200 * MS, until - 50 * MS)
        used = sum(min(r.end, freed) - max(r.start, limited) for r in trace.of("a")
                   if r.end > limited and r.start < freed)
        part = 100 * used / (freed - limited)
        print("a used %.1f %% under its limit; beside a higher class %s" % (part, busy))
        farm.between(part, 20, 44, "a's part of the time at a limit of 40 %")
        farm.between(busy.get("b", 0), 90, 99.9, "b's share above a's class")
        code, out, err = tool(place, "set", "--tenant", "a", "--priority", "urgent")
        check(code == 2 and "high" in err, "a class that there is not: %d %s" % (code, err))


def check_figures():
    """Memory held without use, and refusals, are there to be seen (cases 10 and 21)."""
    with farm.Farm(sim=SIM, MEM_LIMIT=GIB) as place:
        a = place.worker("a")
        a.ok("spin 1000")
        a.ok("sync")
        a.ok("alloc cuMemAlloc_v2 %d" % (700 * MIB))
        equal(alloc(a, 400 * MIB)[0], OUT_OF_MEMORY, "too much")
        time.sleep(1.5)
        tenant, client = place.tenant("a"), place.gpu()["clients"][0]
        for each in (tenant, client):
            equal((each["memory_used_bytes"], each["refusals"]), (700 * MIB, 1), "held and refused")
            equal(each["last_refusal_asked_bytes"], 400 * MIB, "asked")
            farm.between(each["last_launch_ago_seconds"], 0.4, 15, "time since its last launch")
        equal((tenant["last_refusal_used_bytes"], tenant["last_refusal_limit_bytes"]),
              (700 * MIB, GIB), "in use and the cap at the refusal")
        code, out, err = tool(place, "status")
        equal((code, err), (0, ""), "status")
        check(re.search(r"^  a +700Mi .* 1.00Gi .* 1 +\S+$", out, re.M), "a's line: " + out)
        check("asked 400Mi, used 700Mi of 1.00Gi" in out, "the refusal: " + out)


def check_devices():
    """One GPU or all of them, by number and by UUID; caps for each in one list."""
    with farm.Farm(sim=dict(SIM, DEVICES=2)) as place:
        a = place.worker("a")
        uuids = [gpu["uuid"] for gpu in sorted(place.status()["gpus"], key=lambda g: g["index"])]

        def totals():
            return sorted(a.ok("total %d" % i)[0] for i in (0, 1))

        def limits():
            caps = {g["uuid"]: g["tenants"][0]["memory_limit_bytes"] for g in place.status()["gpus"]}
            return [caps[uuid] for uuid in uuids]

        equal(totals(), [DEVICE] * 2, "totals at the start")
        change(place, "--tenant", "a", "--mem", "1Gi", "--gpu", "1")
        equal((limits(), totals()), ([None, GIB], [GIB, DEVICE]), "the second ring alone")
        change(place, "--tenant", "a", "--mem", "2Gi", "--gpu", uuids[0].upper())
        equal((limits(), totals()), ([2 * GIB, GIB], [GIB, 2 * GIB]), "the first by its UUID")
        code, out, err = tool(place, "set", "--tenant", "a", "--mem", "3Gi", "--gpu", "GPU-")
        equal((code, out), (1, ""), "the beginning of two UUIDs")
        said = change(place, "--tenant", "a", "--mem", "25%")
        equal((limits(), said.count("memory cap 2Gi")), ([2 * GIB] * 2, 2), "all: " + said)
        change(place, "--tenant", "a", "--mem", "0:3Gi,%s:4Gi" % uuids[1], "--gpu", "all")
        equal(limits(), [3 * GIB, 4 * GIB], "a list")
        said = change(place, "--tenant", "a", "--mem", "%s:1Gi" % uuids[1])
        check("%s: --mem '%s:1Gi' names other GPUs" % (uuids[0], uuids[1]) in said, "left: " + said)
        equal(limits(), [3 * GIB, GIB], "a list that names one of them")


def without_power(words):
    """The command without root's power to write everything, where this is root."""
    if os.geteuid() != 0:
        return words
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", *words]


def check_permission():
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        print("root may write everything: permissions are not looked at")
        return
    with farm.Farm() as place:
        a = place.worker("a")
        a.ok("total")
        os.chmod(place.ring_file(), 0o444)
        for words in (("set", "--tenant", "a", "--weight", "5"), ("reap",)):
            code, out, err = tool(place, *words, wrap=without_power)
            equal((code, out), (1, ""), "%s without permission" % words[0])
            check("cannot be opened for writing: Permission denied" in err, "why: " + err)


def check_reap():
    """The only client is killed: nobody would notice until somebody came."""
    with farm.Farm(sim=SIM) as place:
        a = place.worker("a")
        a.ok("alloc cuMemAlloc_v2 %d" % GIB)
        a.ok("spin 1000")
        a.ok("sync")
        equal(tool(place, "reap")[1].count("0 dead cleared"), 1, "with a live client")
        equal(place.gpu()["clients"][0]["memory_used_bytes"], GIB, "it has kept its bytes")
        a.kill()
        equal(place.gpu()["unreaped"], 1, "not cleared yet")
        code, out, err = tool(place, "reap")
        equal((code, err), (0, ""), "reap")
        check("process %d (worker) of a: 1.00Gi reserved" % a.pid in out, "who was cleared: " + out)
        check("1 dead cleared, 1.00Gi freed" in out, "how many: " + out)
        gpu = place.gpu()
        equal((gpu["unreaped"], gpu["reaped"], gpu["clients"]), (0, 1, []), "after it")
        b = place.worker("b")
        b.ok("spin 1000")
        b.ok("sync")


farm.run(check_lowered, check_forms, check_unknown, check_pinned, check_process_cap, check_ceiling,
         check_weight_and_quantum,
         check_limit_and_priority, check_figures, check_devices, check_permission, check_reap)
