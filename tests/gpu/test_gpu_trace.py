"""The raw path on a GPU: every access kept, and what is computed from them equals what the device reduced.

Both are of the same launches (``--memory=trace,objects,sites,blocks,shared``), so that nothing but the two ways of
counting can differ. The accesses themselves are checked against the program's text.
"""

from __future__ import annotations

import polars as pl
import pytest
from test_gpu_memory import VECTOR, WARPS, N, Recorder, measure, patterns  # noqa: F401

from pasta.tools.analysis.raw_accesses import RawAccesses, array_module
from pasta.tools.runner import run

EVERYTHING = "trace,objects,sites,blocks,shared"
KEYS = {
    "access_object": ["launch_id", "object_id", "tensor_id"],
    "access_site": ["launch_id", "site_id", "space"],
    "access_block": ["launch_id", "object_id", "offset"],
}


def test_vector_add_is_kept_whole(measure: Recorder) -> None:  # noqa: F811
    recorded = measure("vector_add", memory="trace")
    access = recorded.table("access")
    recorded.check(access.height == 3 * WARPS)
    recorded.check(set(access.select("lanes", "stride", "bytes", "space").rows()) == {(0xFFFFFFFF, 4, 4, "global")})
    recorded.check(access["kind"].value_counts(sort=True).rows() == [("load", 2 * WARPS), ("store", WARPS)])
    for row in (
        recorded.table("alloc").filter(pl.col("bytes") == VECTOR, pl.col("action") == "alloc").iter_rows(named=True)
    ):
        own = access.filter(pl.col("address").is_between(row["address"], row["address"] + VECTOR - 1))["address"].sort()
        recorded.check(own.to_list() == list(range(row["address"], row["address"] + VECTOR, 128)))
    recorded.check(access["site_id"].n_unique() == 3 and access["execution"].n_unique() == 3 * WARPS)
    recorded.check(recorded.table("access_object").is_empty() and recorded.table("access_site").is_empty())


@pytest.mark.parametrize("module", ["numpy", "cupy"])
@pytest.mark.parametrize(
    "mode",
    ["vector_add", "strides", "transposes", "histogram", "async", "padded", "bulk", "divergent", "pool", "managed"],
)
def test_both_ways_of_counting_agree(measure: Recorder, mode: str, module: str) -> None:  # noqa: F811
    if module == "cupy":
        pytest.importorskip("cupy")
    recorded = measure(mode, memory=EVERYTHING)
    recorded.check(recorded.table("loss").filter(pl.col("table") == "access").is_empty())
    computed = RawAccesses(recorded.trace, array_module(module))
    for name, keys in KEYS.items():
        reduced = recorded.table(name).sort(keys, nulls_last=True)
        recorded.check(reduced.equals(computed.table(name).sort(keys, nulls_last=True).collect()))
    for tool in ("workingset", "hotness", "coalescing"):
        one, other = run(tool, recorded.trace), run(tool, computed)
        recorded.check(all(a.frame.equals(b.frame) for a, b in zip(one.tables, other.tables, strict=True)))


def test_what_finds_no_room_is_counted(measure: Recorder) -> None:  # noqa: F811
    # A tenth of 8 MiB holds 26,214 records of 32 bytes; each warp's access takes one.
    recorded = measure("vector_add", memory="trace", PASTA_MEMORY_BUFFER="8M")
    kept = recorded.table("access").height
    lost = recorded.table("loss").filter(pl.col("table") == "access")["records"].sum()
    recorded.check((kept, lost) == (26214, 3 * WARPS - 26214))


def test_sampled_launches_are_kept(measure: Recorder) -> None:  # noqa: F811
    recorded = measure("many", memory="trace", PASTA_SAMPLE="2:1000")
    recorded.check(recorded.table("access").group_by("launch_id").len()["len"].to_list() == [3 * N // 32] * 3)
