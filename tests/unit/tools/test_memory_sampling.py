"""Sums of a sampled recording: estimates for all launches, and how exact they are, against closed forms."""

from __future__ import annotations

import math
import statistics
from itertools import combinations
from typing import Any

import pytest
from golden import result_of

from pasta.tools.analysis.sampling import estimate_sums, is_sampled, sampling_note
from pasta.tools.testing import MemoryTrace, trace_of

SAMPLED = {"options": {"memory": "objects", "sample": "2:3"}}


def sampled(*strata: tuple[str, int, list[int]], manifest: Any = SAMPLED) -> MemoryTrace:
    """Kernels (name with its grid, launches, bytes loaded by each measured launch, the first ones)."""
    kernels, rows = [], []
    for name, ran, loaded in strata:
        base, _, grid = name.partition("/")
        for i in range(ran):
            launch = {"launch_id": len(kernels), "name": base, "grid_x": int(grid or 1)}
            if i < len(loaded):
                counts = {"loads": loaded[i] // 4, "load_bytes": loaded[i], "pages_4k": 1}
                rows.append({"launch_id": len(kernels), "object_id": 1, **counts})
            kernels.append({**launch, "queued_ns": len(kernels), "start_ns": len(kernels)})
    alloc = [{"object_id": 1, "action": "alloc", "bytes": 1 << 20, "start_ns": 0, "kind": "device"}]
    return trace_of(manifest=manifest, kernel=kernels, access_object=rows, alloc=alloc)


def kernels_of(trace: MemoryTrace) -> dict[str, tuple[int, float | None]]:
    frame = result_of("workingset", trace).table("kernels").frame
    return {row["kernel"]: (row["load_bytes"], row["error"]) for row in frame.iter_rows(named=True)}


def percent(ran: int, values: list[int]) -> float:
    """Standard error of the estimated sum, in percent of it."""
    n = len(values)
    error = ran * statistics.stdev(values) * math.sqrt((1 - n / ran) / n)
    return 100 * error / (ran * statistics.mean(values))


def test_sums_are_estimates_for_all_launches() -> None:
    values = [400, 800, 600]
    total, error = kernels_of(sampled(("k", 30, values)))["k"]
    assert total == 10 * sum(values)
    assert error == pytest.approx(percent(30, values))  # 30 * 200 * sqrt(0.9 / 3) of 18000
    assert error == pytest.approx(100 * 6000 * math.sqrt(0.3) / 18000)


def test_equal_launches_leave_no_error_and_one_leaves_it_open() -> None:
    found = kernels_of(sampled(("same", 100, [64, 64]), ("once", 5, [64]), ("all", 2, [4, 400])))
    assert found == {"same": (6400, 0.0), "once": (320, None), "all": (404, 0.0)}


def test_each_grid_is_estimated_by_itself_and_errors_add_as_squares() -> None:
    small, large = [100, 300], [4000, 8000]
    total, error = kernels_of(sampled(("k/1", 10, small), ("k/2", 4, large)))["k"]
    assert total == 5 * 400 + 2 * 12000
    absolute = [percent(10, small) * 2000, percent(4, large) * 24000]
    assert error == pytest.approx(math.hypot(*absolute) / 26000)


def test_what_some_launches_do_not_touch_counts_as_nothing_there() -> None:
    """Two launches of four were measured, one of them at line 7: 2 * 10 executions; s is that of 10 and 0."""
    kernels = [{"launch_id": i, "name": "k", "start_ns": i} for i in range(4)]
    sites = [{"launch_id": 0, "site_id": 7, "executions": 10}, {"launch_id": 1, "site_id": 8, "executions": 4}]
    trace = trace_of(manifest=SAMPLED, kernel=kernels, access_site=sites)
    sums = estimate_sums(trace, "access_site", trace.table("access_site"), ["site_id"], ["executions"], "executions")
    rows = {site: (sum_, error) for site, sum_, error in sums.select("site_id", "executions", "error").collect().rows()}
    for site, value in ((7, 10), (8, 4)):
        assert rows[site][0] == 2 * value
        assert rows[site][1] == pytest.approx(percent(4, [value, 0]))


def test_the_variance_is_that_of_all_ways_to_draw() -> None:
    """Over every way to measure 3 of 6 launches, estimates are right on average, and so are squared errors."""
    values = [8, 16, 12, 40, 4, 20]
    draws = list(combinations(range(6), 3))
    kernels = [{"launch_id": i, "name": f"k{i // 6}", "start_ns": i} for i in range(6 * len(draws))]
    rows = [{"launch_id": 6 * draw + i, "loads": values[i]} for draw, chosen in enumerate(draws) for i in chosen]
    trace = trace_of(manifest=SAMPLED, kernel=kernels, access_object=rows)
    names = trace.table("kernel").select("pid", "launch_id", "name")
    named = trace.table("access_object").join(names, on=["pid", "launch_id"])
    sums = estimate_sums(trace, "access_object", named, ["name"], ["loads"], "loads").collect()
    assert sums.height == len(draws)
    assert statistics.mean(sums["loads"]) == sum(values)
    squares = statistics.mean((sums["loads"] * sums["error"] / 100) ** 2)
    assert squares == pytest.approx(statistics.pvariance(sums["loads"]))


def test_the_note_names_what_was_not_measured_at_all() -> None:
    trace = sampled(("k", 30, [4]), ("never", 7, []))
    assert sampling_note(trace, "access_object").endswith("; 7 launches of others not in them")
    whole = sampled(("k", 30, [4]), manifest={"options": {"memory": "objects"}})
    assert not is_sampled(whole)
    assert sampling_note(whole, "access_object") == ""
    frame = result_of("workingset", whole).table("kernels").frame
    assert frame["load_bytes"].to_list() == [4]  # of what was measured
    note = result_of("workingset", whole).table("workingset").note
    assert note == "1 of 30 launches were measured; sets of the others are not known"


def test_hotness_and_coalescing_estimate_too() -> None:
    frame = result_of("hotness", sampled(("k", 30, [400, 800, 600]))).table("objects").frame
    assert frame["accesses"].to_list() == [10 * 450]
    sites = [
        {"launch_id": i, "site_id": 1, "kind": "load", "space": "global", "executions": 1, "lanes": 32, "bytes": 128,
         "sectors": 16, "ideal_sectors": 4}
        for i in range(3)
    ]  # fmt: skip
    kernels = [{"launch_id": i, "name": "k", "start_ns": i, "device_id": 0} for i in range(9)]
    trace = trace_of(
        manifest=SAMPLED, access_site=sites, kernel=kernels, line=[{"site_id": 1, "kernel": "k"}],
        device=[{"device_id": 0, "warp_size": 32}],
    )  # fmt: skip
    row = result_of("coalescing", trace).table("sites").frame.row(0, named=True)
    assert (row["sectors"], row["excess"], row["error"], row["efficiency"]) == (144, 108, 0.0, 25.0)
    row = result_of("divergence", trace).table("divergence").frame.row(0, named=True)
    assert (row["executions"], row["active"]) == (9, 100.0)
    note = result_of("coalescing", trace).table("sites").note
    assert note.startswith("3 of 9 launches were measured; sums are estimates for all launches")


def test_two_passes_say_what_agreed() -> None:
    counts = {"launches": {"both": 1, "timing_only": 2, "memory_only": 3}}
    trace = sampled(("k", 1, [4]), manifest={"passes": counts})
    assert result_of("workingset", trace).table("workingset").note == (
        "1 launch measured; times and accesses are of two runs, which agree in 1 launches; "
        "2 of the timing pass and 3 of the memory pass have no equal"
    )
    counts["launches"] |= {"timing_only": 0, "memory_only": 0}
    assert result_of("workload", trace).table("memory").note.endswith("two runs, which agree in all 1 launches")
