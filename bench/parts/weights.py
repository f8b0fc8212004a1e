"""How exactly clients get the shares that their weights ask for, whatever their work is like.

By the device's trace: a turn occupies the device from its first start to its last end. All clients
want it all the time. Slices are counted as in trace.share_error: of N of them a single one is 1/N, so
after 1,000 no more than 0.1 points are asked, and 1 where a kernel is longer than the slice.
"""
import collections

from parts.company import MS, Company
from parts.trace import share_error

SLICES = 1000

# `clients`: name, weight, tenant, line of pace_client. `most`: points asked after SLICES.
Case = collections.namedtuple("Case", "name quantum_ms most clients")


def steady(name, weight, ms, ahead=8, tenant=None):
    return name, weight, tenant or name, "steady %%g %d %d" % (ms * MS, ahead)


CASES = (
    Case("50/30/20, kernels of 1 ms, slices of 10 ms", 10, 0.1,
         (steady("a", 50, 1), steady("b", 30, 1), steady("c", 20, 1))),
    Case("90/10, kernels of 0.5 ms, slices of 10 ms", 10, 0.1,
         (steady("a", 90, 0.5), steady("b", 10, 0.5))),
    Case("1:100, kernels of 0.25 ms, slices of 2 ms", 2, 0.1,
         (steady("a", 1, 0.25), steady("b", 100, 0.25))),
    Case("30/70, a synchronise after each kernel of 2 ms, slices of 10 ms", 10, 0.1,
         (steady("a", 30, 2, 1), steady("b", 70, 2, 1))),
    Case("50/30/20, kernels of 0.05, 1 and 20 ms, slices of 20 ms", 20, 0.1,
         (steady("a", 50, 0.05, 64), steady("b", 30, 1), steady("c", 20, 20, 2))),
    Case("50/30/20, kernels of 300, 1 and 5 ms, slices of 20 ms", 20, 1,
         (steady("a", 50, 300, 2), steady("b", 30, 1), steady("c", 20, 5))),
    Case("five processes in one tenant against one, kernels of 1 ms, slices of 10 ms", 10, 0.1,
         (steady("a", 50, 1), *(steady("b%d" % i, 50, 1, 8, "b") for i in range(5)))),
)


def measure_case(stage, report, case):
    seconds = 1.15 * SLICES * case.quantum_ms / 1000 + 1
    settings = {name: {"WEIGHT": weight, "QUANTUM": "%dms" % case.quantum_ms, "TENANT": tenant}
                for name, weight, tenant, _ in case.clients}
    load = Company(stage, {name: line % seconds for name, _, _, line in case.clients},
                   stage.directory(), settings=settings)
    tenants = {name: tenant for name, _, tenant, _ in case.clients}
    weights = {tenant: weight for _, weight, tenant, _ in case.clients}
    asked = {tenant: 100 * weight / sum(weights.values()) for tenant, weight in weights.items()}
    runs = [run._replace(who=tenants[run.who]) for run in load.runs]
    worst = share_error(runs, asked, SLICES, case.quantum_ms * MS)
    if worst is None:
        report.miss(case.name, "fewer than %d slices in %.1f s" % (SLICES, seconds))
        return
    report.add(case.name, "points", [worst], [load.idle() / 10], None, bound=("<=", case.most))


def measure_weights(stage, report):
    for case in CASES:
        measure_case(stage, report, case)
