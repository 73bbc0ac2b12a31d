"""Files as people have them: the same week of one workload in each form, and files that are a mistake.

`python -m tests.support.recommendation.people_files` prints what each of them gives.
"""

# ruff: noqa: E501 - tables with a file on each line

import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.support.cli.running import equipoise

START = 1_790_002_800
HOURS = [START + 3600 * hour for hour in range(7 * 24)]
PODS = ("web-7d4b9c6f5-x2x4b", "web-7d4b9c6f5-x2x4c")
ADVICE = ("recommendation", "plan", "web", "--from", "FILE", "--request", "2", "--no-forecast", "-o", "json")
ADVICE_FOR_ALL = tuple(word for word in ADVICE if word != "web")
TWO = ("--replicas", "2")
ROTATE = ("rotation", "plan", "--from", "FILE", "--request", "1", "--target", "70", "-o", "json")


def usage(hour: int, pod: int) -> float:
    """Return the cores of a pod; the second has a quarter more than the first."""
    return round((8 + 6 * math.sin(2 * math.pi * hour / 24)) * (1 + pod / 4), 3)


class PeopleFile(NamedTuple):
    """A file, the command that reads it, and what it gives."""

    name: str
    content: str | bytes
    gives: str = "the pods"
    """Which facts have to hold: those of the pods, of their total, or others by name."""
    words: Sequence[str] = ADVICE
    warnings: Sequence[str] = ()
    """Parts of the lines on standard error, in order; no other line may be there."""
    file_name: str = "usage.csv"

    def run(self, folder: Path) -> tuple[int, str, list[str]]:
        """Return the exit status, standard output and the lines of standard error."""
        path = folder / self.file_name
        path.write_bytes(self.content if isinstance(self.content, bytes) else self.content.encode())
        done = equipoise(*(str(path) if word == "FILE" else word for word in self.words))
        return done.returncode, done.stdout, done.stderr.replace(f"{folder}/", "").splitlines()


def rows(header: str, cells: Callable[[int, int], str], each: Sequence[int] = (0, 1)) -> str:
    """Return a CSV with a line for each hour and each of these."""
    lines = [cells(hour, part) for hour in range(len(HOURS)) for part in each]
    return "\n".join([header, *lines]) + "\n"


def wide(header: str, *more: str, time: Callable[[int], str] = str) -> str:
    """Return a CSV with a line for each hour, and both pods in it."""
    cells = [
        ",".join([time(at), f"{usage(hour, 0)}", f"{usage(hour, 1)}", *more]) for hour, at in enumerate(HOURS)
    ]
    return "\n".join([header, *cells]) + "\n"


def total(hour: int) -> float:
    """Return the cores of both pods."""
    return round(usage(hour, 0) + usage(hour, 1), 3)


def totals(header: str, cells: Callable[[int, int], str] | None = None) -> str:
    """Return a CSV with the total of each hour."""
    return rows(header, cells or (lambda hour, _: f"{HOURS[hour]},{total(hour)}"), (0,))


def values(pod: int, share: float = 1.0) -> list[list[Any]]:
    """Return the samples of a pod as Prometheus writes them."""
    return [[at, f"{usage(hour, pod) * share:.6f}"] for hour, at in enumerate(HOURS)]


def answer(result: Sequence[Any], kind: str = "matrix", **more: Any) -> str:
    """Return an answer of Prometheus."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more})


SERIES = [{"metric": {"pod": name}, "values": values(pod)} for pod, name in enumerate(PODS)]
CONTAINERS = [
    {"metric": {"pod": name, "container": container}, "values": values(pod, share)}
    for pod, name in enumerate(PODS)
    for container, share in (("", 1.0), ("POD", 0.01), ("app", 0.75), ("proxy", 0.25))
]
TOTAL = [[at, str(total(hour))] for hour, at in enumerate(HOURS)]
LEGENDS = ",".join(f'"{{namespace=""shop"", pod=""{name}""}}"' for name in PODS)
TOP = """NAME    CPU(cores)   MEMORY(bytes)
web-0   1200m        100Mi
web-1   1100m        100Mi
web-2   300m         100Mi
web-3   200m         100Mi
"""
POD_METRICS = [
    {
        "metadata": {"name": name, "namespace": "shop"},
        "timestamp": "2026-09-21T10:00:00Z",
        "window": "15s",
        "containers": [{"name": "app", "usage": {"cpu": cpu, "memory": "100Mi"}}],
    }
    for name, cpu in (("web-0", "1200000000n"), ("web-1", "1100m"), ("web-2", "300m"), ("web-3", "200000u"))
]


def _iso(at: int, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)


def _later(at: int) -> str:
    return datetime.fromtimestamp(at, timezone(timedelta(hours=2))).isoformat()


_SUM = "the total"
_TOP = "the rotation"
NO_NAMES = "2 pods are taken as those of web, by their names"
FORMS = [
    PeopleFile("timestamp,workload,pod,value", rows("timestamp,workload,pod,value", lambda h, p: f"{HOURS[h]},web,{PODS[p]},{usage(h, p)}")),
    PeopleFile("ts,value", totals("ts,value"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("timestamp,cpu", totals("timestamp,cpu"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("ISO 8601 in UTC", totals("timestamp,value", lambda h, _: f"{_iso(HOURS[h])},{total(h)}"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("times without a zone", totals("timestamp,value", lambda h, _: f"{_iso(HOURS[h], '%Y-%m-%d %H:%M:%S')},{total(h)}"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("times of another zone", totals("timestamp,value", lambda h, _: f"{_later(HOURS[h])},{total(h)}"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("a spreadsheet's header", totals('"Date","CPU (cores)"').replace("\n", "\r\n"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("a byte order mark", ("\ufeff" + totals("timestamp,cpu")), _SUM, (*ADVICE, *TWO)),
    PeopleFile("millicores by name", totals("timestamp,cpu_millicores", lambda h, _: f"{HOURS[h]},{total(h) * 1000:.0f}"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("quantities", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) * 1000:.0f}m"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("extra columns", totals("timestamp,cpu,node,zone", lambda h, _: f"{HOURS[h]},{total(h)},n1,eu"), _SUM, (*ADVICE, *TWO), ["usage.csv: ignored the columns 'node', 'zone'"]),
    PeopleFile("cpu and memory", totals("timestamp,cpu,memory", lambda h, _: f"{HOURS[h]},{total(h)},{200 + h % 24}Mi"), "the memory", (*ADVICE, *TWO, "--type", "Resource")),
    PeopleFile("memory in MiB", totals("timestamp,cpu,memory_mib", lambda h, _: f"{HOURS[h]},{total(h)},{200 + h % 24}"), "the memory", (*ADVICE, *TWO, "--type", "Resource")),
    PeopleFile("rows of containers", rows("timestamp,workload,pod,container,cpu", lambda h, p: f"{HOURS[h]},web,{PODS[p // 2]},c{p % 2},{usage(h, p // 2) / 2:.6f}", range(4))),
    PeopleFile("timestamp,pod,cpu", rows("timestamp,pod,cpu", lambda h, p: f"{HOURS[h]},{PODS[p]},{usage(h, p)}")),
    PeopleFile("timestamp,workload,cpu", totals("timestamp,workload,cpu", lambda h, _: f"{HOURS[h]},web,{total(h)}"), _SUM, (*ADVICE, *TWO)),
    PeopleFile("query_range, by pod", answer(SERIES), file_name="answer.json"),
    PeopleFile("query_range, no WORKLOAD", answer(SERIES), words=ADVICE_FOR_ALL, warnings=[NO_NAMES]),
    PeopleFile("query_range, by container", answer(CONTAINERS)),
    PeopleFile("query_range, by workload", answer([{"metric": {"deployment": "web"}, "values": TOTAL}]), _SUM, (*ADVICE, *TWO)),
    PeopleFile("query_range, one sum", answer([{"metric": {}, "values": TOTAL}]), _SUM, (*ADVICE, *TWO)),
    PeopleFile("data of query_range (jq .data)", json.dumps(json.loads(answer(SERIES))["data"], indent=1)),
    PeopleFile("promtool query range -o json", json.dumps(SERIES)),
    PeopleFile("query, one sample for each pod", answer([{"metric": one["metric"], "value": values(pod)[-1]} for pod, one in enumerate(SERIES)], "vector"), "one sample", warnings=["holds one sample for each series"]),
    PeopleFile("Grafana, series joined by time", wide(f'"Time",{LEGENDS}', time=lambda at: _iso(at, "%Y-%m-%d %H:%M:%S")), "the pods of shop"),
    PeopleFile("Grafana, milliseconds", wide('"Time","web-a","web-b"', time=lambda at: f"{at}000")),
    PeopleFile("Grafana, for Excel", "sep=,\n" + wide('"Time","web-a","web-b"')),
    PeopleFile("wide, with WORKLOAD", wide("timestamp,web-a,web-b")),
    PeopleFile("wide, one is another's", wide("timestamp,web-a,web-b,db-a", "3.5")),
    PeopleFile("wide, without WORKLOAD", wide("timestamp,web,api"), "two workloads", ADVICE_FOR_ALL, ["--replicas was not given; 1 is taken"]),
    PeopleFile("wide, the workload's total", wide("timestamp,other,web").replace("other", "api"), "the second pod", (*ADVICE, *TWO)),
    PeopleFile("wide, with text", wide("timestamp,web-a,web-b,web-note", "fine"), warnings=["ignored a column of text, such as 'fine'"]),
    PeopleFile("JSON that is called .csv", answer(SERIES), file_name="usage.csv"),
    PeopleFile("CSV that is called .parquet", totals("timestamp,cpu"), _SUM, (*ADVICE, *TWO), file_name="usage.parquet"),
    PeopleFile("kubectl top pod", TOP, _TOP, ROTATE),
    PeopleFile("kubectl top pod --no-headers", TOP.split("\n", 1)[1], _TOP, ROTATE),
    PeopleFile("kubectl top pod -A", "NAMESPACE   " + TOP.replace("\nweb", "\nshop   web"), _TOP, ROTATE),
    PeopleFile("kubectl top pod --containers", "POD  " + "".join(f"{line.split()[0]} {line}\n" if line[:3] == "web" else f"{line}\n" for line in TOP.splitlines()), _TOP, ROTATE),
    PeopleFile("kubectl top pod --sum", f"{TOP}        ________     ________\n        2800m        400Mi\n", _TOP, ROTATE),
    PeopleFile("PodMetricsList", json.dumps({"kind": "PodMetricsList", "items": POD_METRICS}), _TOP, ROTATE),
    PeopleFile("kubectl get podmetrics -o yaml", json.dumps({"kind": "List", "items": [one | {"kind": "PodMetrics"} for one in POD_METRICS]}), _TOP, ROTATE),
    PeopleFile("kubectl top pod, cores as target", TOP, _TOP, (*ROTATE[:4], "web", "--target", "700m", "-o", "json")),
]  # fmt: skip

_RISING = [[at, str(1000 + 30 * hour)] for hour, at in enumerate(HOURS)]
_FLAT = totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{1 + h % 24}")
_LOW = ("--set", "ehpa.min-cpu-usage-threshold=0")
ABSURD = [
    PeopleFile("millicores", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) * 1000:.0f}"), "low", (*ADVICE, *TWO), ["more than 20 times the 4 cores that 2 pods request: this looks like millicores"]),
    PeopleFile("millicores, one pod", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) * 10:.0f}"), "low", (*ADVICE, "--replicas", "1"), ["more than 20 times the 2 cores that its pod requests"]),
    PeopleFile("millicores, no request", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) * 1000:.0f}"), "low", (*ADVICE[:5], *TWO, "-o", "json"), ["--request was not given", "cores looks like millicores"]),
    PeopleFile("bytes", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) * 1e7:.0f}"), "low", (*ADVICE, *TWO), ["looks like bytes of memory"]),
    PeopleFile("a counter", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{1000 + 30 * h}"), "low", (*ADVICE, *TWO), ["web: the values never fall: this looks like a counter; use rate()"]),
    PeopleFile("a counter of Prometheus", answer([{"metric": {"pod": name}, "values": _RISING} for name in PODS]), "low", ADVICE, ["looks like a counter; use rate()"]),
    PeopleFile("a counter, forecast", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{1000 + 30 * h}"), "read", ("forecast", "--from", "FILE", "-o", "json"), ["looks like a counter; use rate()"]),
    PeopleFile("millicores, forecast", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) * 1000:.0f}"), "read", ("forecast", "--from", "FILE", "-o", "json"), ["cores looks like millicores"]),
    PeopleFile("a request of 1000 cores", totals("timestamp,cpu"), "low", (*ADVICE, *TWO, "--request", "1000"), ["a request of 1,000 cores for each pod looks like millicores; 1000m is 1 core", "minReplicas and maxReplicas are both"]),
    PeopleFile("a request of 250 cores", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) / 10:.3f}"), "low", (*ADVICE, *TWO, "--request", "250", *_LOW), ["250m is 0.25 cores", "minReplicas and maxReplicas are both"]),
    PeopleFile("12 replicas, 2 pods", answer(SERIES), "low", (*ADVICE, "--replicas", "12"), ["usage.csv has 2 pods in its last week, and --replicas 12 is taken"]),
    PeopleFile("1 replica, 2 columns", wide("timestamp,web-a,web-b"), "low", (*ADVICE, "--replicas", "1"), ["has 2 pods in its last week, and --replicas 1 is taken"]),
    PeopleFile("minimum is maximum", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{(1 + h % 24) / 100}"), "low", (*ADVICE, *TWO, *_LOW), ["minReplicas and maxReplicas are both"]),
    PeopleFile("one sample is negative", totals("timestamp,cpu") + f"{HOURS[-1] + 3600},-1\n", "low", (*ADVICE, *TWO), ["1 sample is negative, of 169, and dropped"]),
    PeopleFile("many samples are negative", totals("timestamp,cpu", lambda h, _: f"{HOURS[h]},{total(h) - 12:.3f}"), "low", (*ADVICE, *TWO), ["samples are negative, of 168, and dropped"]),
    PeopleFile("negative, forecast", totals("timestamp,cpu") + f"{HOURS[-1] + 3600},-1\n", "read", ("forecast", "--from", "FILE", "-o", "json"), ["1 sample is negative"]),
    PeopleFile("columns without rows", "Time,web-a,web-b\n", "low", (*ADVICE, *TWO)),
    PeopleFile("pods as workloads", wide(f"timestamp,{','.join(PODS)}"), "read", ADVICE_FOR_ALL, ["looks like a pod: give the workload web to have its pods added up", "--replicas was not given"]),
    PeopleFile("pods of web-api too", wide(f"timestamp,{PODS[0]},{PODS[1]},web-api-7d4b9c6f5-x2x4d", "9"), "the pods", ADVICE, ["ignored 1 pod of web-api"]),
    PeopleFile("the storage's warning", answer(SERIES, warnings=["a store is down"]), "the pods", ADVICE, ["Prometheus warned: a store is down"]),
    PeopleFile("a series without a pod", answer([*SERIES, {"metric": {"node": "n1"}, "values": values(0)}]), "the pods", ADVICE, ["ignored 1 series without a pod label"]),
    PeopleFile("histograms", answer([one | {"histograms": [[START, {}]]} for one in SERIES]), "the pods", ADVICE, ["ignored native histograms"]),
    PeopleFile("usage 100 times the request", TOP, "read", (*ROTATE[:5], "5m", *ROTATE[6:]), ["is more than 20 times the request of 0.005"]),
    PeopleFile("a request of 1000, rotated", TOP, "read", (*ROTATE[:5], "1000", *ROTATE[6:]), ["a request of 1,000 cores looks like millicores"]),
]  # fmt: skip


def shown(file: PeopleFile, status: int, printed: str) -> str:
    """Return what a file gave, on one line."""
    if status or not printed:
        return f"exit {status}"
    document = json.loads(printed)
    if "decisions" not in document:
        return f"{document['model']}, {len(document['values'])} values"
    return "; ".join(_decision(one) for one in document["decisions"])


def _decision(one: dict[str, Any]) -> str:
    recommended = one.get("recommended") or {}
    if "maxReplicas" in recommended:
        target = f"{recommended['targetUtilization']}%"
        advice = f"{recommended['minReplicas']} to {recommended['maxReplicas']} replicas at {target}"
    elif "containers" in recommended:
        advice = ", ".join(
            f"{key} {value}" for key, value in recommended["containers"][0]["requests"].items()
        )
    else:
        advice = " ".join(action["pod"] for action in one["actions"])
    sure = f" ({one['numbers']['confidence']} confidence)" if "confidence" in one["numbers"] else ""
    return f"{one['subject']} {one['reason']}{': ' if advice else ''}{advice}{sure}"


def main() -> None:
    """Print what each file gives."""
    with TemporaryDirectory() as folder:
        for title, files in (("As people have them", FORMS), ("Absurd", ABSURD)):
            sys.stdout.write(f"{title}\n")
            for file in files:
                status, printed, said = file.run(Path(folder))
                sys.stdout.write(f"  {file.name}: {shown(file, status, printed)}\n")
                sys.stdout.writelines(f"      {line}\n" for line in said)


if __name__ == "__main__":
    main()
