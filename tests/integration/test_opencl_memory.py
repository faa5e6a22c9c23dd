"""`pasta record --memory` on OpenCL: counts follow from the programs' arguments, which see nothing of it.

Expected numbers are closed forms: each work-item of a kernel in ``opencl_memory_cases.py`` makes the accesses that its
source shows, 4 bytes each; a line has 64 bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from opencl_measure import measure_c, measure_python, nothing_lost, objects
from opencl_memory_cases import EDGE, SOURCE, N
from opencl_run import need_intel, rows, run_plain, run_recorded
from recorded import PASTA

from pasta.trace import Trace

pytest.importorskip("pyopencl")

_PROGRAM = Path(__file__).parent / "opencl_memory_cases.py"
_ALGORITHMS = Path(__file__).parent / "opencl_algorithms.py"
_COUNTS = ["argument", "loads", "stores", "load_bytes", "store_bytes", "lines"]
_VECTOR = 4 * N  # bytes


def measure(case: str, folder: Path, *options: str) -> Trace:
    """Record a case; its output must be the same as without pasta."""
    return measure_python(_PROGRAM, case, folder, *options)


def sites(trace: Trace) -> list[tuple[int, str, int, int]]:
    """Return line, kind, executions by a work-item, and bytes of each row of `access_site`, in the source's order."""
    joined = trace.table("access_site").join(trace.table("line"), on="site_id", how="left")
    return joined.sort("launch_id", "line", "kind", "site_id").select("line", "kind", "lanes", "bytes").collect().rows()


def line_of(text: str) -> int:
    """Return the number of the only line of the source that holds ``text``."""
    (number,) = [i for i, line in enumerate(SOURCE.splitlines(), start=1) if text in line]
    return number


def test_vector_add(tmp_path: Path) -> None:
    trace = measure("vector_add", tmp_path)
    found = objects(trace)
    lines = N // 16
    assert found.select(_COUNTS).rows() == [
        (0, N, 0, _VECTOR, 0, lines),
        (1, N, 0, _VECTOR, 0, lines),
        (2, 0, N, 0, _VECTOR, lines),
    ]
    assert found.select("space", "first_offset", "last_offset").unique().rows() == [("global", 0, _VECTOR - 1)]
    # Objects are those of `alloc`, in the order in which the program made them.
    made = rows(trace, "alloc").filter(action="alloc")
    assert found["object_id"].to_list() == made["object_id"].to_list()
    assert set(found["launch_id"]) == set(rows(trace, "kernel")["launch_id"])
    at = line_of("c[i] = a[i] + b[i]")
    assert sites(trace) == [(at, "load", N, _VECTOR), (at, "load", N, _VECTOR), (at, "store", N, _VECTOR)]
    assert set(trace.table("line").collect()["file"]) == {"<program source>"}
    assert nothing_lost(trace)


def test_strided(tmp_path: Path) -> None:
    trace = measure("strided", tmp_path)
    found = objects(trace)
    # N loads, `stride` elements apart: a line of 16 elements serves 16 / stride of them.
    expected = [(N, N * min(stride, 16) // 16, 4 * (N - 1) * stride) for stride in (1, 2, 16, 64)]
    loads = found.filter(argument=0)
    assert loads.select("loads", "lines").rows() == [row[:2] for row in expected]
    # The last byte touched is known to the line.
    assert [last // 64 for last in loads["last_offset"]] == [row[2] // 64 for row in expected]
    assert found.filter(argument=1).select("stores", "lines").unique().rows() == [(N, N // 16)]
    assert nothing_lost(trace)


def test_matrices(tmp_path: Path) -> None:
    trace = measure("matrices", tmp_path, "--memory=objects,sites,shared")
    squared, cubed = EDGE**2, EDGE**3
    found = objects(trace).select("kernel", "space", "argument", "loads", "stores").rows()
    assert found == [
        ("matmul", "global", 0, cubed, 0),
        ("matmul", "global", 1, cubed, 0),
        ("matmul", "global", 2, 0, squared),
        ("transpose", "global", 0, squared, 0),
        ("transpose", "global", 1, 0, squared),
        ("transpose_tiled", "global", 0, squared, 0),
        ("transpose_tiled", "global", 1, 0, squared),
        ("transpose_tiled", "shared", 3, squared, squared),
    ]
    assert nothing_lost(trace)


def test_local_memory_is_asked_for(tmp_path: Path) -> None:
    trace = measure("matrices", tmp_path)
    assert set(objects(trace)["space"]) == {"global"}
    assert set(trace.table("access_site").collect()["space"]) == {"global"}


def test_shared_buffers(tmp_path: Path) -> None:
    trace = measure("shared_buffers", tmp_path)
    found = objects(trace)
    assert found.select("kernel", "argument", "loads", "stores", "lines").rows() == [
        ("increment", 0, N, N, N // 16),
        ("copy", 0, N, 0, N // 16),
        ("copy", 1, 0, N, N // 16),
        ("increment", 0, N // 2, N // 2, N // 32),
    ]
    first, copied, target, part = found["object_id"]
    assert first == copied
    parents = dict(rows(trace, "alloc").filter(action="alloc").select("object_id", "parent_object_id").rows())
    assert parents[part] == target
    assert nothing_lost(trace)


@pytest.mark.parametrize("buffer", ["256M", "1M"])
def test_loop(buffer: str, tmp_path: Path) -> None:
    """A small buffer is read and cleared on the way."""
    trace = measure("loop", tmp_path, "--memory", f"--memory-buffer={buffer}")
    found = objects(trace)
    assert found["launch_id"].n_unique() == found.height == 1000
    assert found.select("loads", "stores", "lines").unique().rows() == [(N, N, N // 16)]
    assert nothing_lost(trace)


def test_programs_see_nothing(tmp_path: Path) -> None:
    """Numbers of arguments, references and kernels; binaries; errors of builds, arguments and launches."""
    trace = measure("queries", tmp_path)
    assert objects(trace).is_empty()
    assert nothing_lost(trace)


def test_clones(tmp_path: Path) -> None:
    trace = measure("clones", tmp_path)
    found = objects(trace)
    assert found.select("loads", "stores").rows() == [(N, N), (N // 2, N // 2)]
    assert found["object_id"].n_unique() == 2
    assert nothing_lost(trace)


def test_shared_virtual_memory(tmp_path: Path) -> None:
    trace = measure("svm", tmp_path)
    (found,) = objects(trace).select("loads", "stores", "first_offset", "last_offset", "object_id").rows()
    assert found[:4] == (N // 2, N // 2, _VECTOR // 2, _VECTOR - 1)
    assert found[4] in rows(trace, "alloc")["object_id"].to_list()
    assert nothing_lost(trace)


def test_binaries_run_as_they_are(tmp_path: Path) -> None:
    trace = measure("binary", tmp_path)
    assert objects(trace).is_empty()
    (loss,) = trace.table("loss").select("table", "records", "cause").collect().rows()
    assert loss[:2] == ("access_object", 1)
    assert "binary" in loss[2]


@pytest.mark.parametrize(("sample", "measured"), [("2", [0, 1]), ("2:3", [0, 1, 4, 7]), ("1:1", list(range(10)))])
def test_sample(sample: str, measured: list[int], tmp_path: Path) -> None:
    """The first launches of each global size, then every K-th."""
    trace = measure("sizes", tmp_path, "--memory", f"--sample={sample}")
    found = set(objects(trace)["launch_id"])
    for size in (N, N // 2):
        launches = rows(trace, "kernel").filter(global_x=size)["launch_id"].to_list()
        assert [i for i, launch in enumerate(launches) if launch in found] == measured
    assert nothing_lost(trace)


def test_kernels_that_are_not_selected_run_as_they_are(tmp_path: Path) -> None:
    trace = measure("matrices", tmp_path, "--memory", "--kernels=transpose$")
    assert set(objects(trace)["kernel"]) == {"transpose"}
    assert nothing_lost(trace)


def test_without_the_option_nothing_is_measured(tmp_path: Path) -> None:
    trace = measure("vector_add", tmp_path, "--trace=all")
    assert not trace.present & {"access_object", "access_site", "line"}


def test_trace_gives_what_counters_cannot(tmp_path: Path) -> None:
    """The lines of each access by 32 work-items side by side, who fill a row of the matrix: 128 bytes."""
    trace = measure("matrices", tmp_path, "--memory=objects,sites,trace")
    joined = trace.table("access_site").join(trace.table("line"), on="site_id", how="left").collect()
    columns = ["kind", "executions", "lanes", "sectors", "ideal_sectors"]
    # A row that is written as a column touches a line for each of its elements.
    assert joined.filter(kernel="transpose").sort("kind").select(columns).rows() == [
        ("load", EDGE, EDGE**2, EDGE * 2, EDGE * 2),
        ("store", EDGE, EDGE**2, EDGE * EDGE, EDGE * 2),
    ]
    # All work-items of a row of the product read the same element of `a`, and neighbours of `b`.
    loads = joined.filter(kernel="matmul", kind="load").sort("sectors")
    assert loads.select("sectors", "ideal_sectors").rows() == [(EDGE**2, EDGE**2), (2 * EDGE**2, 2 * EDGE**2)]
    assert nothing_lost(trace)


def analyze(tool: str, trace: Path) -> list[dict[str, Any]]:
    """Return the rows of the tool's first table."""
    command: list[str | Path] = [*PASTA, "analyze", "--tool", tool, "--format", "json", trace]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    rows_: list[dict[str, Any]] = json.loads(shown.stdout)["tables"][0]["rows"]
    return rows_


def test_tools_show_numbers(tmp_path: Path) -> None:
    measure("matrices", tmp_path, "--memory=objects,sites,trace")
    trace = tmp_path / "matrices.pasta"
    # The product touches three whole matrices, 4 bytes an element; its two loads are made n^3 times each.
    assert analyze("workingset", trace)[0]["max_bytes"] == 3 * EDGE**2 * 4
    assert analyze("hotness", trace)[0]["accesses"] == EDGE**3 + 2 * EDGE**2  # the matrix that all three read
    worst = analyze("coalescing", trace)[0]
    assert (worst["kernel"], worst["kind"], worst["excess"]) == ("transpose", "store", EDGE * EDGE - EDGE * 2)


@pytest.mark.parametrize("buffer", ["256M", "1M"])
@pytest.mark.parametrize("case", ["out_of_order", "many_queues", "many_buffers", "threads", "come_and_go"])
def test_every_launch_is_measured(case: str, buffer: str, tmp_path: Path) -> None:
    """Launches out of order, by many queues or threads, on many buffers, of programs that come and go."""
    _, trace = measure_c(case, tmp_path, f"--memory-buffer={buffer}")
    found = objects(trace)
    assert sorted(found["launch_id"]) == sorted(rows(trace, "kernel")["launch_id"])
    assert found.select("loads", "stores", "lines").unique().rows() == [(N, N, N // 16)]
    assert nothing_lost(trace)


def test_programs_that_hold_launches_back_are_not_held_up(tmp_path: Path) -> None:
    """A full buffer waits for launches only while they move: the rest run as they are, and are counted."""
    launches, trace = measure_c("held", tmp_path, "--memory-buffer=1M")
    (loss,) = trace.table("loss").select("records", "cause", "remedy").collect().rows()
    assert 0 < loss[0] < launches
    assert objects(trace).height + loss[0] == launches
    assert loss[1:] == ("the counts of a launch found no room", "raise --memory-buffer")


def test_unified_shared_memory(tmp_path: Path) -> None:
    """A pointer into the middle of an allocation, and one that the kernel finds in memory."""
    _, trace = measure_c("usm", tmp_path)
    values, pointers = rows(trace, "alloc").filter(kind="shared_usm", action="alloc")["object_id"]
    columns = ["kernel", "object_id", "argument", "loads", "stores", "first_offset"]
    assert set(objects(trace).select(columns).rows()) == {
        ("increment", values, 0, N, N, _VECTOR),
        ("follow", pointers, 0, N, 0, 0),
        ("follow", values, None, 0, N, 0),
    }
    assert nothing_lost(trace)


def test_algorithms_give_the_same_results(tmp_path: Path) -> None:
    """pyopencl's scans, sorts, reductions and random numbers, all of whose launches are measured."""
    pytest.importorskip("mako")
    from opencl_algorithms import COUNT

    driver = need_intel()
    command: list[str | Path] = [sys.executable, _ALGORITHMS, driver.platform]
    output = tmp_path / "algorithms.pasta"
    recorded = run_recorded(driver, output, *command, options=("--memory",))
    assert recorded.returncode == 0, recorded.stderr
    plain = run_plain(driver, *command)
    assert json.loads(recorded.stdout) == json.loads(plain.stdout)
    trace = Trace.open(output)
    found = objects(trace)
    assert set(found["launch_id"]) == set(rows(trace, "kernel")["launch_id"])
    add = found.filter(kernel="add_them").select(pl.col("loads", "stores").sum())
    assert add.rows() == [(2 * COUNT, COUNT)]
    # y = A x with 0 to 4 elements in each of 1,000 rows; a row's end is read once more than it has elements.
    elements = 200 * (0 + 1 + 2 + 3 + 4)
    assert found.filter(kernel="csr_matvec").select("argument", "loads", "stores").rows() == [
        (0, 1000 + (elements + 1000), 0),
        (1, elements, 0),
        (2, elements, 0),
        (3, elements, 0),
        (4, 0, 1000),
    ]
    assert nothing_lost(trace)
