"""A library that nobody here wrote, loopy, runs unchanged with ``--memory``; the counts follow from its input."""

from __future__ import annotations

from pathlib import Path

import pytest
from opencl_measure import measure_python, nothing_lost, objects
from opencl_run import rows

pytest.importorskip("pyopencl")
pytest.importorskip("loopy")

_PROGRAM = Path(__file__).parent / "opencl_library.py"


def test_generated_kernels(tmp_path: Path) -> None:
    from opencl_library import EDGE, TILE, N

    trace = measure_python(_PROGRAM, "all", tmp_path, "--memory=objects,lines,sites,shared")
    found = objects(trace).select("kernel", "space", "argument", "loads", "stores", "lines")
    cubed, squared = EDGE**3, EDGE**2
    # An element of a product needs a row and a column; tiles of both are read once for all TILE x TILE elements.
    once = cubed // TILE
    by_kernel = {kernel: found.filter(kernel=kernel).drop("kernel").rows() for kernel in ("saxpy", "naive", "tiled")}
    assert by_kernel["saxpy"] == [("global", 0, N, 0, N // 16), ("global", 1, N, N, N // 16)]
    assert by_kernel["naive"] == [
        ("global", 0, cubed, 0, squared // 16),
        ("global", 1, cubed, 0, squared // 16),
        ("global", 2, 0, squared, squared // 16),
    ]
    tiled = by_kernel["tiled"]
    assert [row for row in tiled if row[0] == "global"] == [
        ("global", 0, once, 0, squared // 16),
        ("global", 1, once, 0, squared // 16),
        ("global", 2, 0, squared, squared // 16),
    ]
    # The two tiles: written once for each element read, read twice for each product.
    assert sorted(row[2:4] for row in tiled if row[0] == "shared") == [(cubed, once)] * 2
    assert set(objects(trace)["launch_id"]) == set(rows(trace, "kernel")["launch_id"])
    assert nothing_lost(trace)
