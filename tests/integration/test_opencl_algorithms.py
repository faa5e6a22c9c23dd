"""pyopencl's own algorithms, which nobody here wrote, give the same results under pasta; every launch is seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from opencl_run import Driver, each_driver, rows, run_plain, run_recorded

from pasta.trace import Trace

_PROGRAM = Path(__file__).parent / "opencl_algorithms.py"


@each_driver
def test_results_and_launches(driver: Driver, tmp_path: Path) -> None:
    pytest.importorskip("mako")
    if driver.platform == "Oclgrind":
        pytest.skip("it simulates every instruction: minutes")
    command = [sys.executable, _PROGRAM, driver.platform]
    plain = run_plain(driver, *command)
    assert plain.returncode == 0, plain.stderr
    expected = json.loads(plain.stdout)
    output = tmp_path / "algorithms.pasta"
    recorded = run_recorded(driver, output, *command)
    assert recorded.returncode == 0, recorded.stderr
    assert json.loads(recorded.stdout) == expected

    trace = Trace.open(output)
    kernels = rows(trace, "kernel")
    assert dict(kernels.group_by("name").len().rows()) == expected["launches"]
    assert kernels["end_ns"].null_count() == 0
    assert trace.table("loss").collect().is_empty()
