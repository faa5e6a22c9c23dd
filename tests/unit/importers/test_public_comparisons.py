"""The comparisons of docs/importing.md: what ``pasta diff`` says of public traces is what the raw files say.

The other side of each comparison is counted here from the JSON or the SQL itself, without pasta.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
import real_traces

from pasta.importers import import_files
from pasta.tools import registry
from pasta.tools.diff import Comparison, Diff, diff_traces
from pasta.trace import Trace

FOLDER = real_traces.folder()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the public traces are not here: set PASTA_TEST_TRACES")

QWEN = ("kineto/tl_h100_qwen.json.gz", "kineto/tl_mi300_qwen.json.gz")
#: Kernels of a repeat.
KERNELS = 119
#: Which kernel of each device begins the first repeat that the tool takes, and how many it takes. Any kernel of a
#: repeat may begin it; the test checks that these do.
REPEATS = {"before": {0: (111, 15), 1: (114, 15)}, "after": {0: (10, 14), 1: (10, 14)}}
TWO_GPUS = {side: f"nsys/nsysai_mfu_2gpu_{side}.sqlite.gz" for side in REPEATS}


def differences(names: Sequence[str], folder: Path, tool: str, match: str = "name", column: str | None = None) -> Diff:
    assert FOLDER is not None
    for side, name in zip("ab", names, strict=True):
        import_files([FOLDER / name], folder / f"{side}.pasta", overwrite=True)
    with Trace.open(folder / "a.pasta") as a, Trace.open(folder / "b.pasta") as b:
        return diff_traces(registry.find(tool), a, b, match=match, column=column)


def both(comparison: Comparison, key: str) -> dict[str, tuple[float, float]]:
    """Return the values of A and of B for each row that both have."""
    return {name: (a, b) for name, a, b in comparison.both.select(key, "base", "new").iter_rows()}


def device_ns_by_operator(name: str, *categories: str) -> Counter[str]:
    """Sum the durations of device events by the operator that their ``External id`` names."""
    assert FOLDER is not None
    document = json.loads(gzip.decompress((FOLDER / name).read_bytes()), parse_float=Decimal)
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    ops = {event["args"]["External id"]: event["name"] for event in events if event["cat"] == "cpu_op"}
    sums: Counter[str] = Counter()
    for event in events:
        if event["cat"] in categories:
            sums[ops.get(event["args"].get("External id"), "(no operator)")] += int(event["dur"] * 1000)
    return sums


def test_operators_of_two_vendors_have_the_kernel_time_of_their_files(tmp_path: Path) -> None:
    (kernels,) = differences(QWEN, tmp_path, "kernels", match="op").comparisons
    a, b = (device_ns_by_operator(name, "kernel") for name in QWEN)
    assert both(kernels, "op") == {name: (a[name], b[name]) for name in a.keys() & b.keys()}
    assert (a["aten::mm"], b["aten::mm"]) == (6_588_415, 8_663_617)


def test_the_work_of_an_operator_is_more_than_its_kernels(tmp_path: Path) -> None:
    (work,) = differences(QWEN, tmp_path, "ops").comparisons
    a, b = (device_ns_by_operator(name, "kernel", "gpu_memcpy", "gpu_memset") for name in QWEN)
    found = both(work, "op")
    for name in (a.keys() & b.keys()) - {"(no operator)"}:
        assert found[name] == (a[name], b[name])
    assert a["aten::mm"] == 6_588_415 + 80_264


Span = tuple[int, int]


def work(database: sqlite3.Connection, device: int, *tables: str) -> list[Span]:
    selects = [f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table} WHERE deviceId = {device}" for table in tables]
    return sorted(database.execute(" UNION ALL ".join(selects)))


def covered(spans: Sequence[Span], low: int, high: int) -> int:
    """Return how much of ``low`` to ``high`` is in at least one of ``spans``, which are sorted."""
    total, end = 0, low
    for start, stop in spans:
        total += max(0, min(stop, high) - max(start, end))
        end = max(end, stop)
    return total


def opened(side: str, folder: Path) -> sqlite3.Connection:
    assert FOLDER is not None
    path = folder / f"{side}.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / TWO_GPUS[side]).read_bytes()))
    return sqlite3.connect(path)


def repeats(database: sqlite3.Connection, device: int, first: int, count: int) -> tuple[float, float, float]:
    """Return the mean length, kernel time and idle time of ``count`` repeats from kernel ``first`` on."""
    query = "SELECT demangledName, start FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = ? ORDER BY start"
    names, starts = zip(*database.execute(query, (device,)), strict=True)
    end = first + count * KERNELS
    assert all(names[i] == names[i + KERNELS] for i in range(first, end - KERNELS))
    low, high = starts[first], starts[end]
    kernels = covered(work(database, device, "KERNEL"), low, high)
    busy = covered(work(database, device, "KERNEL", "MEMCPY", "MEMSET"), low, high)
    return (high - low) / count, kernels / count, (high - low - busy) / count


def test_repeats_of_two_gpus_are_as_long_and_as_idle_as_in_the_exports(tmp_path: Path) -> None:
    comparisons = {c.table.name: c for c in differences([*TWO_GPUS.values()], tmp_path, "workload").comparisons}
    parts = both(comparisons["where"], "part")
    lengths = both(comparisons["steps"], "what")["repeat"]
    for number, (side, devices) in enumerate(REPEATS.items()):
        with closing(opened(side, tmp_path)) as database:
            each = [repeats(database, device, *where) for device, where in devices.items()]
        length, kernels, idle = (sum(values) / len(each) for values in zip(*each, strict=True))
        assert lengths[number] == pytest.approx(length, abs=1)
        assert parts["kernels"][number] == pytest.approx(kernels, abs=1)
        found = sum(values[number] for part, values in parts.items() if part.startswith("idle"))
        assert found == pytest.approx(idle, abs=1)


def test_a_launch_takes_the_host_as_long_as_in_the_exports(tmp_path: Path) -> None:
    (calls,) = differences([*TWO_GPUS.values()], tmp_path, "api", column="mean_ns").comparisons
    launch = both(calls, "function")["cudaLaunchKernel"]
    query = (
        "SELECT avg(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON nameId = id "
        "WHERE value GLOB 'cudaLaunchKernel_v*'"
    )
    for number, side in enumerate(REPEATS):
        with closing(opened(side, tmp_path)) as database:
            ((mean,),) = database.execute(query)
        assert launch[number] == pytest.approx(mean, abs=1)
    assert launch[1] > 1.4 * launch[0]
