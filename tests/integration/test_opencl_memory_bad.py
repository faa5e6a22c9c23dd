"""`pasta record --memory` where something is missing: programs run as they are, and `loss` says what to do about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from opencl_measure import losses, measure_python, objects
from opencl_memory_cases import N
from opencl_run import DRIVERS, need_intel, rows, shim

pytest.importorskip("pyopencl")

_PROGRAMS = Path(__file__).parent / "opencl_memory_programs.py"
_CASES = Path(__file__).parent / "opencl_memory_cases.py"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("block_read", "SPV_INTEL_subgroups"),
        ("assembly", "gave up without a message"),
        ("enqueues", "kernels enqueued by a kernel"),
    ],
)
def test_kernels_that_cannot_be_rewritten(case: str, why: str, tmp_path: Path) -> None:
    """Not even a compiler library that ends or crashes its process is a trouble to the program."""
    trace = measure_python(_PROGRAMS, case, tmp_path)
    assert rows(trace, "kernel")["name"].to_list() == ["add"]
    assert objects(trace).is_empty()
    ((records, cause, _),) = losses(trace)
    assert records == 1
    assert why in cause


def test_the_compiler_is_no_child_of_the_program(tmp_path: Path) -> None:
    trace = measure_python(_PROGRAMS, "children", tmp_path)
    assert objects(trace).height == 1


def test_without_a_compiler(tmp_path: Path) -> None:
    driver = replace(need_intel(), own_variables=(("PASTA_OPENCL_CLANG", "/nonexistent/libopencl-clang.so"),))
    trace = measure_python(_PROGRAMS, "all_kernels", tmp_path, driver=driver)
    ((records, cause, remedy),) = losses(trace)
    assert records == 1
    assert "/nonexistent/libopencl-clang.so" in cause
    assert remedy is not None
    assert "pip install 'pasta[cpu]'" in remedy


@pytest.mark.parametrize("name", [*sorted(DRIVERS.keys() - {"intel"}), "shim"])
def test_devices_without_spirv(name: str, tmp_path: Path) -> None:
    """The timeline only, and the command that installs a device with more."""
    driver = shim("no_il", tmp_path) if name == "shim" else DRIVERS[name]
    trace = measure_python(_CASES, "sizes", tmp_path, driver=driver)
    kernels = rows(trace, "kernel")
    assert kernels["global_x"].to_list() == [N, N // 2] * 10
    assert kernels["end_ns"].null_count() == 0
    assert "access_object" not in trace.present or objects(trace).is_empty()
    ((records, cause, remedy),) = losses(trace)
    assert records == 20
    assert "SPIR-V" in cause
    assert remedy is not None
    assert "pip install 'pasta[cpu]'" in remedy


def test_little_device_memory(tmp_path: Path) -> None:
    """The buffer for counts gets smaller until the device has it. Large objects are then seen in pages.

    With 1 MiB for counts, the map of an object of 64 MiB has 64 Ki entries: enough for its pages, not for its lines.
    """
    driver = shim("little_memory", tmp_path, PASTA_TEST_MOST_BYTES=str(1 << 20))
    trace = measure_python(_CASES, "large", tmp_path, driver=driver)
    columns = ["loads", "stores", "lines", "pages_4k"]
    assert objects(trace).select(columns).rows() == [(N, N, None, 4 * N // 4096)]
    ((records, cause, remedy),) = losses(trace)
    assert records is None
    assert cause.endswith(f"not enough memory for the counts: objects of more than {4 << 20} bytes are seen in pages")
    assert remedy == "let the program use less of it, or lower --memory-buffer"


def test_no_device_memory(tmp_path: Path) -> None:
    driver = shim("little_memory", tmp_path, PASTA_TEST_MOST_BYTES=str(100 << 10))
    trace = measure_python(_CASES, "sizes", tmp_path, driver=driver)
    assert objects(trace).is_empty()
    ((records, cause, _),) = losses(trace)
    assert records == 20
    assert "no memory for counts" in cause
