#!/usr/bin/env python3
"""`cuslice status` and `cuslice config` on a ring with known figures: JSON and tables, life and
death of clients, files that are no rings, directories that are none."""
import json
import os
import shutil
import subprocess
import sys
import time

B = os.environ["B"]
DIR = os.environ["CUSLICE_DIR"]
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
# How long ago the last launch was: an hour, where the machine has been up for so long.
AGO = 3700 if time.monotonic() > 3800 else 65
failures = 0


def check(ok, words):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", words)


def equal(is_, should, words):
    check(is_ == should, "%s: %r, not %r" % (words, is_, should))


def tool(*arguments, **environment):
    done = subprocess.run([os.path.join(B, "cuslice")] + list(arguments), text=True,
                          capture_output=True, env=dict(os.environ, **environment))
    return done.returncode, done.stdout, done.stderr


def status():
    code, out, err = tool("status", "--json")
    equal((code, err), (0, ""), "status --json")
    return json.loads(out)


def check_json():
    seen = status()
    equal(seen["problems"], [], "problems")
    equal(seen["directory"], DIR, "directory")
    equal(len(seen["gpus"]), 1, "GPUs")
    gpu = seen["gpus"][0]
    equal(gpu["uuid"], UUID, "uuid")
    equal(gpu["name"], "Test GPU", "name")
    equal(gpu["memory_bytes"], 80 << 30, "memory_bytes")
    equal(gpu["memory_used_bytes"], (1 << 30) + (1 << 29) + 4096, "memory_used_bytes")
    equal(gpu["quantum_seconds"], 0.02, "quantum_seconds")
    equal(gpu["allowance_seconds"], 1, "allowance_seconds")
    equal((gpu["index"], gpu["set_by_admin"]), (0, []), "index and what is set")
    equal((gpu["token_epoch"], gpu["holder_slot"]), (8, 0), "token")
    equal((gpu["waiting"], gpu["unreaped"]), (1, 1), "waiting, unreaped")
    alpha, beta, gone = gpu["tenants"]
    check_alpha(alpha)
    equal(beta["memory_used_bytes"], 4096, "beta's use: the dead client's bytes are not counted")
    equal(beta["memory_limit_bytes"], None, "beta's cap")
    equal((beta["clients"], beta["waiting"]), (1, 1), "beta's clients")
    equal((beta["last_refusal_used_bytes"], beta["last_refusal_limit_bytes"],
           beta["last_launch_ago_seconds"]), (None, None, None), "what beta never had")
    equal((gone["clients"], gone["memory_used_bytes"]), (0, 0), "gone")
    check(59 < gone["left_ago_seconds"] < 90, "left_ago_seconds %r" % gone["left_ago_seconds"])
    check_clients(gpu["clients"])


def check_alpha(alpha):
    equal((alpha["key"], alpha["display"]), ("alpha", "alpha!"), "alpha's names")
    equal((alpha["clients"], alpha["holds"]), (2, True), "alpha's clients")
    equal(alpha["memory_used_bytes"], (1 << 30) + (1 << 29), "alpha's use")
    equal(alpha["memory_limit_bytes"], 4 << 30, "alpha's cap")
    equal((alpha["weight"], alpha["limit_percent"]), (50, 100), "weight and limit")
    equal((alpha["priority"], alpha["mode"]), ("normal", "enforce"), "priority and mode")
    equal(alpha["granted_seconds"], 2.5, "granted_seconds")
    equal(alpha["charged_seconds"], 2, "charged_seconds")
    equal(alpha["waited_seconds"], 0.75, "waited_seconds")
    equal([alpha[k] for k in ("slices", "revocations", "faults", "launches", "refusals")],
          [123, 2, 1, 4567, 3], "counts")
    equal((alpha["refused_bytes"], alpha["last_refusal_asked_bytes"]), (3 << 20, 1 << 20), "refused")
    check(9 < alpha["last_refusal_ago_seconds"] < 40, "last_refusal_ago_seconds")
    equal((alpha["last_refusal_used_bytes"], alpha["last_refusal_limit_bytes"]),
          (15 << 28, 4 << 30), "what was in use at the last refusal, and the cap")
    check(AGO - 1 < alpha["last_launch_ago_seconds"] < AGO + 30, "last_launch_ago_seconds")
    equal((alpha["context_bytes"], alpha["memory_orphaned_bytes"]), (300 << 20, 8 << 20),
          "contexts and orphaned")
    equal([alpha["memory_%s_bytes" % k] for k in ("exported", "imported", "paged")],
          [16 << 20, 9 << 20, 0], "shared and paged")
    equal((alpha["set_by_admin"], alpha["process_memory_limit_bytes"]), ([], None), "what is set")
    equal(alpha["wait"]["count"], 100, "waits")
    check(0.0167 < alpha["wait"]["p50_seconds"] < 0.021, "p50 %r" % alpha["wait"]["p50_seconds"])
    equal(alpha["left_ago_seconds"], None, "left_ago_seconds of a tenant that is there")


def check_clients(clients):
    equal([c["slot"] for c in clients], [0, 1, 2], "live slots")
    equal([c["tenant"] for c in clients], ["alpha", "alpha", "beta"], "tenants of clients")
    equal([c["pid"] for c in clients], [1000, 1001, 1002], "process ids")
    equal([c["host_pid"] for c in clients], [None] * 3, "host process ids")
    equal([c["holds"] for c in clients], [True, False, False], "holds")
    equal([c["waits"] for c in clients], [False, False, True], "waits")
    equal([c["process_memory_limit_bytes"] for c in clients], [2 << 30, None, None], "caps")
    check(0 < clients[0]["holding_seconds"] < 30, "holding_seconds")
    check(0 < clients[2]["waiting_seconds"] < 30, "waiting_seconds")


def row(text, name):
    """The cells of the first line that has the name as a word."""
    for line in text.splitlines():
        if name in line.split():
            return line.split()
    return []


def check_tables():
    code, out, err = tool("status")
    equal((code, err), (0, ""), "status")
    turns, memory, processes = (part.splitlines() for part in out.split("\n\n")[1:])
    equal(turns[1].split()[:9] + turns[1].split()[-2:],
          ["*", "alpha!", "50", "25.0%", "2", "2.50s", "2.00s", "750ms", "123", "2", "1"],
          "alpha's row")
    equal(turns[2].split()[:4], ["beta!", "150", "75.0%", "1"], "beta's row")
    equal(memory[0].split(), ["MEMORY", "OF", "RESERVED", "CONTEXT", "CAP", "PEAK", "ORPHANED",
                              "EXPORTED", "IMPORTED", "REFUSED", "IDLE"],
          "columns: those that nobody has are out")
    *row, idle = memory[1].split()
    equal(row, ["alpha!", "1.50Gi", "~300Mi", "4.00Gi", "4.00Ki", "8.00Mi", "16.0Mi", "9.00Mi", "3"],
          "alpha's memory")
    check(idle.startswith("1h01m" if AGO > 3600 else "1m"), "alpha's last launch: %r" % idle)
    equal(memory[2].split(), ["1000", "program-0", "1.00Gi", "~300Mi", "2.00Gi", "1.50Gi", "-", "0",
                              "0", "0", "never"], "its first process's")
    equal([line.split()[0] for line in memory[1:6]], ["alpha!", "1000", "1001", "beta!", "1002"],
          "each tenant's processes stand below it")
    check(memory[6].startswith("  refused    alpha!, 1") and
          memory[6].endswith("s ago: asked 1.00Mi, used 3.75Gi of 4.00Gi"), "the refusal: %r" % memory[6])
    equal(len(memory), 7, "lines about memory")
    equal(processes[2].split(), ["alpha!", "1", "1001", "-", "program-1", "0", "0", "quiet"],
          "a process that does nothing")
    check(max(map(len, out.splitlines())) <= 100, "wider than 100 columns:\n" + out)
    check("gone!" not in out, "a tenant without clients is shown without --all")
    check("gone!" in tool("status", "--all")[1], "a tenant without clients is not shown by --all")
    check(UUID in out and "Test GPU" in out and "program-2" in out, "names are missing:\n" + out)
    check("process 1000 (program-0)" in out, "the holder is not named:\n" + out)
    check(not any(line != line.rstrip() for line in out.splitlines()), "blanks at line ends")


def check_death(ring):
    ring.stdin.close()
    ring.wait()
    gpu = status()["gpus"][0]
    equal(gpu["clients"], [], "clients after their death")
    equal((gpu["memory_used_bytes"], gpu["holder_slot"], gpu["waiting"]), (0, None, 0), "the dead")
    equal(len(gpu["tenants"]), 3, "tenants outlive their clients")
    check("no process attached" in tool("status")[1], "an empty ring is not called so")


def check_foreign():
    with open(os.path.join(DIR, "broken.ring"), "w") as file:
        file.write("not a ring")
    code, out, err = tool("status", "--json")
    equal(code, 1, "exit code with a foreign file")
    equal(len(json.loads(out)["gpus"]), 1, "the good ring beside it")
    equal(json.loads(out)["problems"],
          [{"path": os.path.join(DIR, "broken.ring"), "reason": "is not a cuslice ring"}], "problems")
    equal(err.count("\n"), 1, "lines for one bad file")
    code, out, err = tool("status")
    equal(code, 1, "exit code with a foreign file")
    check(UUID in out and "broken.ring is not a cuslice ring" in err, "both are told")
    os.unlink(os.path.join(DIR, "broken.ring"))
    other = os.path.join(DIR, "GPU-ff112233-4455-6677-8899-aabbccddeeff.ring")
    shutil.copy(os.path.join(DIR, UUID + ".ring"), other)
    code, out, err = tool("status", "--json")
    equal((code, err.count("\n")), (1, 1), "exit code and lines with another GPU's ring")
    equal([gpu["uuid"] for gpu in json.loads(out)["gpus"]], [UUID], "rings, without the copy")
    equal(json.loads(out)["problems"],
          [{"path": other, "reason": "is not what its name says: the ring of %s" % UUID}], "problems")
    os.unlink(other)


def check_directories():
    missing = os.path.join(DIR, "missing")
    code, out, err = tool("status", "--dir", missing)
    equal((code, err), (0, ""), "a directory that does not exist yet")
    check(missing in out, "which directory was looked at is not told")
    code, out, _ = tool("status", "--json", "--dir", missing)
    equal((code, json.loads(out)["gpus"]), (0, []), "the same as JSON")
    code, out, err = tool("status", "--dir", "/dev/null")
    equal((code, out), (1, ""), "a directory that is none")
    check("/dev/null" in err, "which one is not told: " + err)


def settings(**environment):
    code, out, _ = tool("config", "--json", **environment)
    parsed = json.loads(out)
    equal(parsed["valid"], code == 0, "valid says what the exit code says")
    return code, {s["name"]: s for s in parsed["settings"]}


def check_config():
    with open(os.path.join(DIR, "defaults"), "w") as file:
        file.write("CUSLICE_WEIGHT=70\nCUSLICE_QUANTUM=40ms\n")
    os.chmod(os.path.join(DIR, "defaults"), 0o644)
    code, found = settings(CUSLICE_QUANTUM="10ms")
    equal(code, 0, "config")
    origin = {name: (s["value"], s["origin"]) for name, s in found.items()}
    equal(origin["CUSLICE_WEIGHT"], ("70", "node defaults"), "weight")
    equal(origin["CUSLICE_QUANTUM"], ("10ms", "environment"), "quantum")
    equal(origin["CUSLICE_ALLOWANCE"], ("1s", "built-in"), "allowance")
    equal(origin["CUSLICE_TENANT"], (None, "built-in"), "tenant")
    check(all(s["help"] for s in found.values()), "a setting without help")
    code, out, err = tool("config", "--json", "--dir", os.path.relpath(DIR), CUSLICE_DIR="/nowhere")
    found = {s["name"]: s["value"] for s in json.loads(out)["settings"]}
    equal((code, err, found["CUSLICE_WEIGHT"]), (0, "", "70"), "config of a relative directory")
    equal(settings(CUSLICE_MEM_LIMIT="12 apples")[0], 1, "exit code with a bad cap")
    out = tool("config")[1]
    equal(row(out, "CUSLICE_WEIGHT")[:4], ["CUSLICE_WEIGHT", "70", "node", "defaults"], "the table")
    equal({line.split()[0] for line in out.splitlines()[1:]}, set(found), "names in the table")


def main():
    ring = subprocess.Popen([os.path.join(B, "tests/integration/ctl_ring"), DIR, str(AGO)],
                            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    equal(ring.stdout.readline(), "ready\n", "the ring is there")
    check_json()
    check_tables()
    check_death(ring)
    check_foreign()
    check_directories()
    check_config()
    print("%d failures" % failures)
    return 1 if failures else 0


sys.exit(main())
