"""The reducers of the device and the analysis of single accesses agree in every row, on random kernels.

The kernels run on the CPU, lane by lane, through the patches' own source and the whole host side; the analysis in
Python shares nothing with it. Addresses, sizes, kinds and active lanes are random.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pasta.tools.analysis.raw_accesses import RawAccesses
from pasta.tools.runner import run
from pasta.trace import Trace

KEYS = {
    "access_object": ["launch_id", "object_id", "tensor_id"],
    "access_site": ["launch_id", "site_id", "space"],
    "access_block": ["launch_id", "object_id", "offset"],
}


@pytest.fixture(scope="module")
def trace(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    output = tmp_path_factory.mktemp("agreement") / "t.pasta"
    result = subprocess.run([build / "test_sanitizer_agreement", output], capture_output=True, text=True, timeout=100)
    if result.returncode == 77:
        pytest.skip("the Sanitizer's headers are not installed")
    assert result.returncode == 0, result.stderr
    with Trace.open(output) as opened:
        yield opened


@pytest.mark.parametrize("table", KEYS)
def test_tables_are_equal(trace: Trace, table: str) -> None:
    reduced = trace.table(table).sort(KEYS[table], nulls_last=True).collect()
    computed = RawAccesses(trace).table(table).sort(KEYS[table], nulls_last=True).collect()
    assert reduced.height > 100
    different = [name for name in reduced.columns if not reduced[name].equals(computed[name])]
    assert not different, pl.concat([reduced.select(*KEYS[table], *different), computed.select(
        pl.col(different).name.suffix("_computed"))], how="horizontal").head(20)  # fmt: skip


@pytest.mark.parametrize("tool", ["workingset", "hotness", "coalescing"])
def test_tools_say_the_same(trace: Trace, tool: str) -> None:
    measured, computed = run(tool, trace), run(tool, RawAccesses(trace))
    assert measured.tables
    assert [table.name for table in measured.tables] == [table.name for table in computed.tables]
    for one, other in zip(measured.tables, computed.tables, strict=True):
        assert one.frame.equals(other.frame), one.name


def test_nothing_was_lost(trace: Trace) -> None:
    assert trace.table("loss").filter(pl.col("source") == "sanitizer").collect().is_empty()
