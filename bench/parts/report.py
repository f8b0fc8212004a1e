"""Figures, each beside its yardstick: collected, printed as a table, written as JSON."""
import json
import os
import platform
import statistics
import time


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "rounds": len(values)}


def short(value):
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return "{:,.{}f}".format(value, digits)


def cell(values, unit):
    if values is None:
        return "–"
    text = ("%s %s" % (short(values["median"]), unit)).rstrip()
    if values["rounds"] > 1:
        text += " (%s…%s)" % (short(values["min"]), short(values["max"]))
    return text


class Report:
    def __init__(self):
        self.figures = []
        self.parts = []
        self.missing = []
        self.notes = []

    def part(self, title, yardstick):
        """Begins a part of the table: what its figures are, and what stands beside them."""
        if not self.parts or self.parts[-1]["title"] != title:
            self.parts.append({"title": title, "yardstick": yardstick, "first": len(self.figures)})

    def add(self, name, unit, values, yardstick, compare, limit=None, bound=None):
        """One figure per round in `values`, and the yardstick's of the same rounds. `compare`:
        'difference', 'ratio', or 'percent' (by how much more) of the two, round by round, or None.
        `limit`: what the comparison should not exceed. `bound`: ('<=' or '>=', number), what is
        asked of the figure's median, or with a third word of that comparison's."""
        figure = {"name": name, "unit": unit, "part": self.parts[-1]["title"],
                  "value": spread(values), "yardstick": spread(yardstick) if yardstick else None}
        if compare and yardstick:
            pairs = list(zip(values, yardstick))
            if compare == "difference":
                both = [v - y for v, y in pairs]
            elif compare == "percent":
                both = [100 * (v - y) / y for v, y in pairs if y]
            else:
                both = [v / y for v, y in pairs if y]
            if both:
                figure[compare] = spread(both)
        if limit is not None:
            figure["limit"] = limit
        if bound is not None:
            how, number = bound[:2]
            got = figure[bound[2] if len(bound) > 2 else "value"]["median"]
            met = got <= number if how == "<=" else got >= number
            figure["asked"] = {"how": how, "number": number, "met": met}
        self.figures.append(figure)

    def miss(self, name, why):
        self.missing.append({"name": name, "why": why.split("\n")[0], "all": why})

    def note(self, text):
        self.notes.append(text)

    @staticmethod
    def compared(figure):
        if "difference" in figure:
            sign = "+" if figure["difference"]["median"] >= 0 else ""
            text = sign + cell(figure["difference"], figure["unit"])
        elif "ratio" in figure:
            text = "× " + cell(figure["ratio"], "")
        elif "percent" in figure:
            sign = "+" if figure["percent"]["median"] >= 0 else ""
            text = sign + cell(figure["percent"], "%")
        else:
            text = "–"
        if "limit" in figure:
            text += "; limit %s" % short(figure["limit"])
        if "asked" in figure:
            asked = figure["asked"]
            text += "; asked %s %s: %s" % ("≤" if asked["how"] == "<=" else "≥",
                                           short(asked["number"]),
                                           "met" if asked["met"] else "MISSED")
        return text

    def table(self):
        lines = []
        for i, part in enumerate(self.parts):
            last = self.parts[i + 1]["first"] if i + 1 < len(self.parts) else len(self.figures)
            if part["first"] == last:
                continue
            lines += ["| %s | with cuslice | %s | added, or × |" %
                      (part["title"], part["yardstick"]), "|---|---|---|---|"]
            lines += ["| %s | %s | %s | %s |" % (f["name"], cell(f["value"], f["unit"]),
                                                cell(f["yardstick"], f["unit"]), self.compared(f))
                      for f in self.figures[part["first"]:last]]
            lines.append("")
        lines += ["Not measured: %s: %s" % (m["name"], m["why"]) for m in self.missing]
        lines += ["%s" % note for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"

    def write(self, path, about):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"about": about, "figures": self.figures, "not_measured": self.missing,
                       "notes": self.notes}, file, indent=1, ensure_ascii=False)
            file.write("\n")


def cpu_ticks():
    """Busy and all ticks of all CPUs since the start of the machine."""
    with open("/proc/stat", encoding="utf-8") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def cpu_use(seconds=0.25):
    """Percent of the CPUs that others use while the benchmarks do nothing."""
    busy, every = cpu_ticks()
    time.sleep(seconds)
    busy_then, every_then = cpu_ticks()
    return 100 * (busy_then - busy) / max(1, every_then - every)


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def about(device):
    return {"date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "device": device,
            "processor": processor(), "cpus": len(os.sched_getaffinity(0)),
            "system": "%s %s %s" % (platform.system(), platform.release(), platform.machine()),
            "libc": " ".join(platform.libc_ver())}
