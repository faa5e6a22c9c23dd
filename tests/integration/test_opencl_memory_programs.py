"""`pasta record --memory` with every way to come by a kernel: what can be measured is, the rest runs as it is.

The kernels of ``opencl_memory_programs.py`` load and store one element of 4 bytes a work-item; a line has 64 bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from opencl_measure import losses, measure_c, measure_python, nothing_lost, objects
from opencl_memory_cases import N
from opencl_run import need_intel, rows, run_plain, run_recorded, shim

from pasta.trace import Trace

pytest.importorskip("pyopencl")

_PROGRAM = Path(__file__).parent / "opencl_memory_programs.py"
_COUNTS = ["kernel", "argument", "loads", "stores", "lines"]


def measure(case: str, folder: Path, *options: str) -> Trace:
    return measure_python(_PROGRAM, case, folder, *options)


@pytest.mark.parametrize("case", ["linked", "library"])
def test_linked_programs(case: str, tmp_path: Path) -> None:
    """A load in the kernel, a store in a function of another program: each at its line, in its function."""
    trace = measure(case, tmp_path)
    assert objects(trace).select(_COUNTS).rows() == [("add", 0, N, N, N // 16)]
    sites = trace.table("access_site").join(trace.table("line"), on="site_id").sort("kind")
    assert sites.select("kind", "lanes", "bytes", "function", "line").collect().rows() == [
        ("load", N, 4 * N, None, 4),
        ("store", N, 4 * N, "store_twice", 2),
    ]
    assert nothing_lost(trace)


@pytest.mark.parametrize(
    ("case", "why"), [("linked_options", "different options"), ("linked_binary", "not seen being compiled")]
)
def test_linked_programs_that_cannot_be_linked_again(case: str, why: str, tmp_path: Path) -> None:
    trace = measure(case, tmp_path)
    assert objects(trace).is_empty()
    ((records, cause, _),) = losses(trace)
    assert records == 1
    assert why in cause


@pytest.mark.parametrize("options", [[], ["--sample=1"]])
def test_program_scope_variables(options: list[str], tmp_path: Path) -> None:
    """Kernels that share a variable run as they are, all of their launches: else they would not share it."""
    trace = measure("variables", tmp_path, "--memory", *options)
    assert objects(trace).select(_COUNTS).rows() == [("increment", 0, N, N, N // 16)]
    found = losses(trace)
    assert [(records, cause.split()[1]) for records, cause, _ in found] == [(3, "count"), (2, "tell")]
    assert all("program-scope variable launches" in cause for _, cause, _ in found)


@pytest.mark.parametrize("case", ["il", "constants", "all_kernels", "information"])
def test_kernels(case: str, tmp_path: Path) -> None:
    """From SPIR-V, with a specialization constant, made with their whole program; what kernels say of themselves."""
    trace = measure(case, tmp_path)
    ((kernel, *counts),) = objects(trace).select(_COUNTS).rows()
    assert kernel == ("add" if case in ("il", "constants") else "increment")
    assert counts == [0, N, N, N // 16]
    assert nothing_lost(trace)


def test_several_devices(tmp_path: Path) -> None:
    """Two devices share a context: each launch has its own counts, by the queue's device."""
    trace = measure("sub_devices", tmp_path)
    found = objects(trace)
    assert found.select(_COUNTS).unique().rows() == [("increment", 0, N // 2, N // 2, N // 32)]
    launches = rows(trace, "kernel").select("launch_id", "device_id")
    assert found["launch_id"].to_list() == launches["launch_id"].to_list()
    devices = launches["device_id"].n_unique()
    assert launches.height == 2 * devices
    if devices == 2:  # a machine of one core has no two
        first, second = found["object_id"].unique(maintain_order=True)
        assert found["object_id"].to_list() == [first, second, second, first]
    assert nothing_lost(trace)


def test_forks(tmp_path: Path) -> None:
    """Launches that wait for their counts stay the parent's; a child that becomes another program has its own."""
    trace = measure("fork", tmp_path)
    found = objects(trace)
    assert found.select(_COUNTS).unique().rows() == [("increment", 0, N, N, N // 16)]
    by_process = rows(trace, "kernel").group_by("pid").len().sort("len")
    assert by_process["len"].to_list() == [1, 30]
    keys = ["pid", "launch_id"]
    assert found.select(keys).sort(keys).rows() == rows(trace, "kernel").select(keys).sort(keys).rows()
    assert nothing_lost(trace)


_CACHED = """
import hashlib, sys, numpy, pyopencl as cl, pyopencl.array
device = next(p for p in cl.get_platforms() if sys.argv[1] in p.name).get_devices()[0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
program = cl.Program(context, "kernel void increment(global int *a) { a[get_global_id(0)] += 1; }").build()
a = cl.array.to_device(queue, numpy.arange(4096, dtype=numpy.int32))
cl.Kernel(program, "increment")(queue, (4096,), None, a.data)
print(cl.array.sum(a).get(), hashlib.sha256(program.binaries[0]).hexdigest())
"""


def test_caches_hold_the_programs_own_binaries(tmp_path: Path) -> None:
    """pyopencl's cache, full or not, hides no kernel from the measurement and gets nothing from it."""
    pytest.importorskip("mako")
    driver = need_intel()
    command = [sys.executable, "-c", _CACHED, driver.platform]

    cache = tmp_path / "cache"

    def cached() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in cache.rglob("binary")}

    def measured(state: str) -> str:
        output = tmp_path / f"{state}.pasta"
        recorded = run_recorded(driver, output, *command, options=("--memory",))
        assert recorded.returncode == 0, recorded.stderr
        trace = Trace.open(output)
        found = objects(trace)
        assert set(found["launch_id"]) == set(rows(trace, "kernel")["launch_id"])
        assert found.filter(kernel="increment").select(_COUNTS).rows() == [("increment", 0, N, N, N // 16)]
        assert nothing_lost(trace)
        return recorded.stdout

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.delenv("PYOPENCL_NO_CACHE", raising=False)
        first = measured("empty")
        assert cached() == {}
        plain = run_plain(driver, *command)
        # pyopencl changes the source of a program that it keeps, so its binary is another one.
        assert plain.stdout.split()[0] == first.split()[0] == str(N * (N + 1) // 2)
        filled = cached()
        assert filled
        assert measured("full") == first
        assert cached() == filled
        patch.setenv("PYOPENCL_NO_CACHE", "1")
        assert run_plain(driver, *command).stdout == first


def test_arguments_set_by_functions_of_extensions(tmp_path: Path) -> None:
    """A buffer, then an address of unified shared memory, then the buffer again: no launch sees a stale one."""
    driver = shim("device_pointer", tmp_path)
    increments, trace = measure_c("device_pointer", tmp_path, driver=driver)
    assert increments == 2
    found = objects(trace)
    assert found.select(_COUNTS).unique().rows() == [("increment", 0, N, N, N // 16)]
    buffer, shared = rows(trace, "alloc").filter(action="alloc")["object_id"]
    assert found["object_id"].to_list() == [buffer, shared, shared, buffer]
    assert nothing_lost(trace)


def test_setters_that_pasta_does_not_know_end_the_measurement(tmp_path: Path) -> None:
    driver = shim("unknown_setter", tmp_path)
    increments, trace = measure_c("unknown_setter", tmp_path, driver=driver)
    assert increments == 2
    assert objects(trace).is_empty()
    ((records, cause, _),) = losses(trace)
    assert records == rows(trace, "kernel").height == 4
    assert cause == "the program sets arguments of kernels with clSetKernelArgOfTheFutureEXT"
