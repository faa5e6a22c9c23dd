"""The demo program: its launches and bytes follow from its arguments."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import polars as pl
import pytest
from opencl_run import Driver, each_driver, rows, run_recorded

from pasta.demo import opencl_kernels
from pasta.trace import Trace

_SIZE, _REPEAT = 48, 2
_FLOATS = _SIZE * _SIZE * 4


@each_driver
def test_demo(driver: Driver, tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    command = [sys.executable, "-m", "pasta.demo.opencl_kernels", "--device", driver.platform]
    output = tmp_path / "demo.pasta"
    result = run_recorded(driver, output, *command, "--size", str(_SIZE), "--repeat", str(_REPEAT))
    assert (result.returncode, result.stdout) == (0, "6 programs: results correct\n"), result.stderr

    trace = Trace.open(output)
    kernels = rows(trace, "kernel")
    # A binary tree of n nodes has floor(log2 n) + 1 levels; the launch for the last one finds nothing new.
    levels = math.floor(math.log2(_SIZE)) + 1
    once = ["vector_add", "matmul", "reduce", "transpose_naive", "transpose_tiled"]
    assert dict(kernels.group_by("name").len().rows()) == dict.fromkeys(once, _REPEAT) | {"bfs_level": levels * _REPEAT}

    edge = _SIZE // opencl_kernels.TILE
    groups = _SIZE * _SIZE // opencl_kernels.GROUP
    grids = {"vector_add": (groups, 1), "reduce": (groups, 1), "matmul": (edge, edge), "transpose_tiled": (edge, edge)}
    for name, grid in grids.items():
        assert set(kernels.filter(pl.col("name") == name).select("grid_x", "grid_y").rows()) == {grid}

    # Four matrices are read back, the partial sums, a flag a level, the depths.
    expected = _REPEAT * (4 * _FLOATS + groups * 4 + levels * 4 + _SIZE * 4)
    copies = rows(trace, "memcpy")
    assert set(copies["kind"]) == {"d2h"}
    assert copies["bytes"].sum() == expected
    assert rows(trace, "memset").select("bytes", "value").rows() == [(4, 0)] * (levels * _REPEAT)


def test_arguments_that_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--size", "33"], ["--size", "x"], ["no_such_program"]):
        with pytest.raises(SystemExit) as end:
            opencl_kernels.main(arguments)
        assert end.value.code == 2
    assert "no program is called no_such_program" in capsys.readouterr().err


def test_no_such_device(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyopencl")
    assert opencl_kernels.main(["--device", "no such device"]) == 2
    assert capsys.readouterr().err == "opencl_kernels: no OpenCL device is called no such device\n"
