"""Launches that are left out run without patches, and those that are measured have every access.

Which are measured follows from the rule: the first N of each kernel and grid, then every K-th. Each launch of
programs/memory_sampling.cu loads and stores every element once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from test_gpu_memory import Measured, Recorder, compile_cuda

N = 1 << 16  # elements


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    other = Path(__file__).parent / "programs" / "memory_sampling_other.cu"
    return compile_cuda("memory_sampling.cu", tmp_path_factory.mktemp("programs"), str(other))


@pytest.fixture
def measure(program: Path, tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(program, tmp_path)
    yield recorder
    for trace in recorder.opened:
        trace.close()


def sampled(launches: int, first: int, every: int) -> list[int]:
    """Return the numbers of the launches that ``--sample first:every`` measures."""
    return [n for n in range(launches) if n < first or (n - first) % every == every - 1]


def check_measured(run: Measured, kernel: str, expected: list[int]) -> None:
    """Check which launches of the kernel were measured, that each has all accesses, and two instructions in all."""
    launches = run.table("kernel").filter(pl.col("name").str.starts_with(kernel)).sort("launch_id")
    rows = launches.with_row_index("number").join(run.table("access_object"), on="launch_id").sort("number")
    run.check(rows["number"].to_list() == expected)
    counts = {(N, N, 4 * N, 4 * N)}
    run.check(set(run.rows(rows, "loads", "stores", "load_bytes", "store_bytes")) == (counts if expected else set()))
    sites = run.table("access_site").join(launches, on="launch_id")
    run.check(sites.height == 2 * len(expected) and sites["lanes"].sum() == 2 * N * len(expected))
    run.check(sites["site_id"].n_unique() == (2 if expected else 0))


def lost(run: Measured) -> int:
    """Return how many launches were to be measured, and could not be."""
    losses = run.table("loss").filter(pl.col("table") == "access_object")
    return int(losses["records"].sum())


def logs(run: Measured) -> Counter[str]:
    """Return what was done to modules, how often; the kinds of instructions left out."""
    return Counter(text.partition(":")[0] for text in run.table("build")["log"])


def patching_ms(run: Measured) -> float:
    """Return the longest that a patching and a removal took together."""
    took = run.table("build").select(log="log", ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6)
    removal = took["log"] == "instrumentation removed"
    longest = [took.filter(which)["ms"].max() or 0.0 for which in (removal, ~removal)]
    return float(sum(longest))  # type: ignore[arg-type]


def test_patches_that_come_and_go_leave_counts_exact(measure: Recorder) -> None:
    run = measure("cycles", memory="objects,sites", PASTA_SAMPLE="2:2000")
    check_measured(run, "increment", sampled(5000, 2, 2000))
    check_measured(run, "late", [0])  # it runs for the first time when the patches of its module are gone
    done = logs(run)
    run.check(done["instrumented"] == 1)
    # Before the launch of `late`, after it, and after the last that is measured; before `late` and both increments.
    # 998 launches are left out between two of these: patches stay as long as 0.25 ms for each would not pay for it.
    if patching_ms(run) < 249:
        run.check(done["instrumentation removed"] >= 2 and done["instrumented again"] >= 2)


def test_patches_come_and_go_in_a_created_stream(measure: Recorder) -> None:
    run = measure("cycles_in_a_stream", memory="objects,sites", PASTA_SAMPLE="2:2000")
    check_measured(run, "increment", sampled(5000, 2, 2000))
    check_measured(run, "late", [0])
    done = logs(run)
    run.check(lost(run) == 0 and done["instrumented"] == 1)
    if patching_ms(run) < 249:
        run.check(done["instrumentation removed"] >= 2 and done["instrumented again"] >= 2)


def test_only_modules_with_selected_kernels_are_patched(measure: Recorder) -> None:
    run = measure("two_modules", memory="objects,sites", PASTA_KERNELS="^other_increment")
    check_measured(run, "other_increment", list(range(100)))
    run.check(run.table("access_object")["launch_id"].n_unique() == 100)
    run.check(logs(run) == {"instrumented": 1})


def test_code_changes_when_what_runs_has_ended(measure: Recorder) -> None:
    run = measure("beside", memory="objects,sites", PASTA_KERNELS="^increment")
    check_measured(run, "increment", list(range(10)))
    run.check(lost(run) == 0)


def test_a_launch_waits_for_a_limited_time(measure: Recorder) -> None:
    run = measure("behind", memory="objects,sites", PASTA_KERNELS="^increment")
    check_measured(run, "increment", list(range(1, 11)))
    run.check(lost(run) == 1)
    run.check(run.table("loss")["cause"].str.contains("waiting for them took too long").any())


def test_graphs_run_patched_code(measure: Recorder) -> None:
    run = measure("graph", memory="objects,sites", PASTA_SAMPLE="2:2000")
    check_measured(run, "increment", sampled(2005, 2, 2000))
    check_measured(run, "late", [0, 1])
    run.check(logs(run)["instrumentation removed"] == 0)


def test_a_graph_of_code_without_patches(measure: Recorder) -> None:
    """It gets none any more: what was to be measured is lost."""
    run = measure("graph_of_plain_code", memory="objects,sites", PASTA_SAMPLE="2:2000")
    check_measured(run, "increment", [])
    check_measured(run, "late", [])
    run.check(lost(run) == len(sampled(2000, 2, 2000)) + 2)


@pytest.mark.parametrize("mode", ["threads", "threads_in_streams"])
def test_threads_share_a_sampled_kernel(measure: Recorder, mode: str) -> None:
    run = measure(mode, memory="objects", PASTA_SAMPLE="3:500")
    rows = run.table("access_object").group_by("launch_id").agg(pl.col("loads", "stores").sum())
    run.check(run.table("kernel").height == 6000)
    run.check({row[1:] for row in rows.rows()} == {(N, N)})
    run.check(rows.height == len(sampled(6000, 3, 500)) and lost(run) == 0)
