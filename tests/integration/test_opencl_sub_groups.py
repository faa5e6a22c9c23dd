"""`pasta record --memory` of blocks, coalescing, divergence and bank conflicts on OpenCL: closed forms of the demo."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opencl_run import need_intel, rows, run_recorded

from pasta.trace import Trace

pytest.importorskip("pyopencl")

_SIZE = 64  # edge of the matrices
_ITEMS = _SIZE * _SIZE
_WIDTH = 32  # work-items of a sub-group


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    driver = need_intel()
    output = tmp_path_factory.mktemp("demo") / "all.pasta"
    command = [sys.executable, "-m", "pasta.demo.opencl_kernels", "--device", driver.platform, "--size", str(_SIZE)]
    result = run_recorded(driver, output, *command, options=("--memory=all",))
    assert (result.returncode, result.stdout) == (0, "6 programs: results correct\n"), result.stderr
    return Trace.open(output)


def sites(trace: Trace, kernel: str, kind: str, space: str) -> list[dict[str, Any]]:
    joined = trace.table("access_site").join(trace.table("line"), on=["pid", "site_id"])
    return list(joined.filter(kernel=kernel, kind=kind, space=space).sort("site_id").collect().to_dicts())


def test_sectors_of_a_transpose(trace: Trace) -> None:
    requests = _ITEMS // _WIDTH
    # A sub-group is two rows of a 16 x 16 tile: it reads from two lines, and writes to one for each column.
    (load,) = sites(trace, "transpose_naive", "load", "global")
    assert (load["executions"], load["sectors"], load["ideal_sectors"]) == (requests, 2 * requests, 2 * requests)
    (store,) = sites(trace, "transpose_naive", "store", "global")
    assert (store["executions"], store["sectors"], store["ideal_sectors"]) == (requests, 16 * requests, 2 * requests)


def test_bank_conflicts_of_a_padded_tile(trace: Trace) -> None:
    # Two rows of 16 in a tile whose rows are 17 apart share one bank of 32.
    (store,) = sites(trace, "transpose_tiled", "store", "shared")
    assert (store["executions"], store["bank_conflicts"], store["sectors"]) == (_ITEMS // 32, _ITEMS // 32, None)


def test_divergence_of_a_reduction(trace: Trace) -> None:
    groups = _ITEMS // 64
    (store,) = sites(trace, "reduce", "store", "global")  # by the first work-item of each
    assert (store["executions"], store["lanes"]) == (groups, groups)
    (load,) = sites(trace, "reduce", "load", "global")
    assert (load["executions"], load["lanes"]) == (_ITEMS // 32, _ITEMS)
    assert set(trace.table("device").collect()["warp_size"]) == {_WIDTH}


def test_blocks(trace: Trace) -> None:
    launches = rows(trace, "kernel").filter(name="matmul")["launch_id"]
    blocks = rows(trace, "access_block").filter(launch_id=launches[0])
    # Both inputs are read once for each of the four tiles in a row, the output is written once.
    assert sorted(blocks["accesses"]) == [_ITEMS, 4 * _ITEMS, 4 * _ITEMS]
    assert set(blocks.select("offset", "bytes").rows()) == {(0, 4 * _ITEMS)}
