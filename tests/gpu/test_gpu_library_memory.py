"""The memory pass on the kernels of cuBLAS, cuDNN and attention: bounds from the sizes of operands and grids, and ncu.

What these kernels do is not known, but they cannot load less than their operands, nor more than all of them for every
block of threads, and they store each element of the result once. ncu counts the same executions by other means.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, environment, record
from test_gpu_memory import Measured, pages, sanitizer_libraries

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "library_calls.py"
GEMMS = [
    f"gemm-{kind}-{shape}" for kind in ("bf16", "fp16", "tf32", "fp32") for shape in ("1024x2048x512", "2048x2048x2048")
]
ATTENTIONS = ["attention-2x8x128x64", "attention-2x8x512x64", "attention-1x8x2048x128"]
CALLS = [*GEMMS, "convolution", *ATTENTIONS]
#: An allocation for each tensor, of its size; this checkout for the program's annotations.
VARIABLES = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
}
NARROWEST_TILE = 32  # of the result, in either direction, that a block of threads computes
COARSE = "whose pages are not exact: im2col"


@dataclass
class Call:
    """One call in the trace: its operands and result (address, bytes), its launches and their accesses."""

    operands: dict[str, tuple[int, int]]
    result: tuple[int, int]
    kernels: pl.DataFrame
    objects: pl.DataFrame  # a row a memory object, summed over the launches

    def row(self, place: tuple[int, int]) -> dict[str, int]:
        """Return what was counted of the tensor there; zeros when nothing touched it."""
        rows = self.objects.filter((pl.col("address") == place[0]) & (pl.col("bytes") == place[1])).to_dicts()
        zeros = dict.fromkeys(("load_bytes", "store_bytes", "pages_4k", "first_offset"), 0) | {"last_offset": -1}
        return rows[0] if rows else zeros

    def blocks(self) -> int:
        """Return the number of thread blocks of all its launches."""
        return int(self.kernels.select((pl.col("grid_x") * pl.col("grid_y") * pl.col("grid_z")).sum()).item())


@dataclass
class Calls:
    """The recording of all calls, and what the program said of them."""

    run: Measured
    said: dict[str, dict[str, object]]

    def __getitem__(self, name: str) -> Call:
        ranges = self.run.table("range").filter(pl.col("name") == name)
        self.run.check(ranges.height == 1)
        inside = pl.col("queued_ns").is_between(ranges["start_ns"][0], ranges["end_ns"][0])
        kernels = self.run.table("kernel").filter(inside).sort("launch_id")
        self.run.check(kernels.height > 0)
        objects = (
            self.run.objects()
            .join(kernels.select("launch_id"), on="launch_id", how="semi")
            .group_by("object_id", "address", "bytes")
            .agg(
                pl.col("loads", "load_bytes", "stores", "store_bytes", "atomics", "atomic_bytes").sum(),
                pl.col("pages_4k").max(), pl.col("first_offset").min(), pl.col("last_offset").max(),
            )
        )  # fmt: skip
        said = json.loads(json.dumps(self.said[name]))
        operands = {key: (place[0], place[1]) for key, place in said["operands"].items()}
        return Call(operands, (said["result"][0], said["result"][1]), kernels, objects)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    output = tmp_path_factory.mktemp("calls") / "calls.pasta"
    variables = {**VARIABLES, "PASTA_MEMORY": "objects,sites", "PASTA_SANITIZER_HINTS": sanitizer_libraries()}
    result = record([sys.executable, PROGRAM], output, ["-t", "cuda,range"], **variables)
    assert result.returncode == 0, result.stderr
    said = {row["call"]: row for row in map(json.loads, result.stdout.splitlines())}
    with Trace.open(output) as trace:
        yield Calls(Measured(trace, result), said)


def skip_without_tma(run: Measured, kernels: pl.DataFrame) -> None:
    """Skip for the kernels of Hopper and later when the Sanitizer library is too old for what they load with."""
    uncounted = run.table("loss").filter(pl.col("cause").str.contains("tma_load instructions|older than 13.3"))
    if uncounted.height and uses_tma(kernels):
        pytest.skip(f"the library has no TMA: {uncounted['cause'].to_list()}")


def uses_tma(kernels: pl.DataFrame) -> bool:
    """Whether the names are those of kernels that may use TMA."""
    return kernels["name"].str.contains("nvjet|sm90|sm100|sm103|sm120").any()


def check_operand(calls: Calls, call: Call, name: str, most: int) -> None:
    """An operand is loaded whole, at least once and at most ``most`` times. Im2col loads tell no pages."""
    address, size = call.operands[name]
    row = call.row((address, size))
    calls.run.check(size <= row["load_bytes"] <= size * most)
    calls.run.check(row["store_bytes"] == 0)
    if row["first_offset"] is None and calls.run.table("loss").filter(pl.col("cause").str.contains(COARSE)).height:
        return
    calls.run.check((row["first_offset"], row["last_offset"]) == (0, size - 1))
    calls.run.check(row["pages_4k"] == pages(address, size, 4096))


def check_result(calls: Calls, call: Call) -> None:
    """Each byte of the result is stored once. TMA stores are not seen, which `pasta info` tells."""
    row = call.row(call.result)
    if row["store_bytes"] == 0 and uses_tma(call.kernels):
        calls.run.check(calls.run.trace.manifest["instructions"].get("tma_store", 0) > 0)
        return
    calls.run.check(row["store_bytes"] == call.result[1])
    calls.run.check((row["first_offset"], row["last_offset"]) == (0, call.result[1] - 1))


@pytest.mark.parametrize("name", GEMMS)
def test_gemm(calls: Calls, name: str) -> None:
    call = calls[name]
    skip_without_tma(calls.run, call.kernels)
    m, n, _ = map(int, name.rsplit("-", 1)[1].split("x"))
    # A tile of the result needs its rows of one operand and its columns of the other.
    check_operand(calls, call, "a", math.ceil(n / NARROWEST_TILE))
    check_operand(calls, call, "b", math.ceil(m / NARROWEST_TILE))
    loaded = sum(call.row(place)["load_bytes"] for place in call.operands.values())
    calls.run.check(loaded <= call.blocks() * sum(size for _, size in call.operands.values()))
    check_result(calls, call)


def test_convolution(calls: Calls) -> None:
    call = calls["convolution"]
    skip_without_tma(calls.run, call.kernels)
    # Every element of the image is under the 9 elements of the filter, for each tile of the 64 output channels.
    check_operand(calls, call, "x", 9 * math.ceil(64 / NARROWEST_TILE))
    check_operand(calls, call, "w", math.ceil(8 * 56 * 56 / NARROWEST_TILE))
    check_result(calls, call)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(calls: Calls, name: str) -> None:
    call = calls[name]
    skip_without_tma(calls.run, call.kernels)
    tokens = int(name.split("x")[2])
    tiles = math.ceil(tokens / NARROWEST_TILE)  # of queries; each sees all keys and values, of its head only
    for operand in ("q", "k", "v"):
        check_operand(calls, call, operand, min(tiles, call.blocks()))
    check_result(calls, call)


# -- ncu -------------------------------------------------------------------------------------------

WARPS, THREADS = "sass__inst_executed_per_opcode", "sass__thread_inst_executed_true_per_opcode"
LOADED, STORED = "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"
FROM_L2 = "l1tex__m_xbar2l1tex_read_bytes.sum"
#: Instructions by what they do, as SASS names them: those of threads, and those that a thread issues for its block.
LSU = {"load": ("LDG", "LD", "LDGSTS"), "store": ("STG", "ST"), "atomic": ("ATOMG", "ATOM", "RED", "REDG")}
BULK = {"load": ("UTMALDG", "UBLKCP"), "store": (), "atomic": ("UBLKRED",)}


def instances(cell: str) -> dict[str, int]:
    """Return the values by opcode of a metric that has one for each: ``30 (LDG: 10; STG: 20)``."""
    found = re.findall(r"([A-Z][A-Z0-9_]*)\s*:\s*([\d,]+)", cell)
    assert found, f"no opcodes in {cell!r}"
    return {opcode: int(number.replace(",", "")) for opcode, number in found}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What ncu counts of the same calls, a row a launch."""
    ncu = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    if ncu is None:
        pytest.skip("no ncu")
    log = tmp_path_factory.mktemp("ncu") / "ncu.csv"
    options = [
        "--profile-from-start", "off", "--csv", "--page", "raw", "--print-units", "base", "--log-file", log,
        "--print-metric-instances", "details", "--metrics", ",".join((WARPS, THREADS, LOADED, STORED, FROM_L2)),
    ]  # fmt: skip
    result = subprocess.run(
        [ncu, *options, sys.executable, PROGRAM], capture_output=True, text=True, env=environment(**VARIABLES)
    )
    text = log.read_text() if log.exists() else result.stdout
    if "ERR_NVGPUCTRPERM" in text:
        pytest.skip("ncu may not read the counters here")
    lines = [line for line in text.splitlines() if line.startswith('"')]
    assert (result.returncode, bool(lines)) == (0, True), f"{result.stderr[-2000:]}\n{text[-3000:]}"
    head, _, *rows = csv.reader(lines)  # the second line has the units
    return [dict(zip(head, row, strict=True)) for row in rows]


def near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= 0.02 * max(ours, theirs)


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def was_read(row: dict[str, str], metric: str, instructions: int) -> bool:
    """Whether ncu has a counter of the hardware: not where it says 0 for instructions that ncu itself counted.

    The instructions are counted by code that ncu adds. The counters of the first launch were all 0 once, on a GPU that
    other processes used, too.
    """
    return instructions == 0 or number(row[metric]) > 0


def test_ncu_reads_counters_of_the_hardware(counted: list[dict[str, str]]) -> None:
    """Of nearly all launches: each loads operands, and they come from the L2 cache."""
    read = [number(row[FROM_L2]) > 0 for row in counted]
    assert sum(read) >= 0.75 * len(read)


@pytest.mark.parametrize("name", CALLS)
def test_ncu_counts_the_same(calls: Calls, counted: list[dict[str, str]], name: str) -> None:
    call = calls[name]
    skip_without_tma(calls.run, call.kernels)
    launches = pl.concat([calls[each].kernels for each in CALLS])["launch_id"].to_list()
    assert len(launches) == len(counted)  # the same kernels in the same order
    sites = calls.run.table("access_site").filter(pl.col("space") == "global")
    unread = []
    for kernel in call.kernels.iter_rows(named=True):
        row = counted[launches.index(kernel["launch_id"])]
        message = f"{kernel['name']}\n{row}\n{sites.filter(pl.col('launch_id') == kernel['launch_id'])}"
        assert re.split("[(<]", row["Kernel Name"])[0].removeprefix("void ") in kernel["name"], message
        if row.get(THREADS, "n/a") in ("", "n/a"):
            pytest.skip(f"no {THREADS} here")
        threads, warps = instances(row[THREADS]), instances(row[WARPS])
        ours = sites.filter(pl.col("launch_id") == kernel["launch_id"])
        lanes = dict(ours.group_by("kind").agg(pl.col("lanes").sum()).rows())
        sectors = dict(ours.group_by("kind").agg(pl.col("sectors").sum()).rows())
        for kind in LSU:
            expected = sum(threads.get(o, 0) for o in LSU[kind]) + sum(warps.get(o, 0) for o in BULK[kind])
            assert near(lanes.get(kind, 0), expected), f"{kind} {lanes} {expected}\n{message}"
        metrics = {LOADED: threads.get("LDG", 0), STORED: threads.get("STG", 0), FROM_L2: warps.get("UTMALDG", 0)}
        if missing := [metric for metric, instructions in metrics.items() if not was_read(row, metric, instructions)]:
            unread.append(f"{kernel['name']}: {missing}")
            continue
        # Bytes that the L1 cache was asked for, in sectors: where no other kind of load is among them.
        if not {"LDGSTS", "UTMALDG", "UBLKCP", "LD"} & set(threads):
            assert near(32 * sectors.get("load", 0), number(row[LOADED])), message
        if "ST" not in threads:
            assert near(32 * sectors.get("store", 0), number(row[STORED])), message
        # TMA goes past the L1 cache: what it asks for is what the L2 cache sends, to all blocks of a cluster at most.
        if "UTMALDG" in warps:
            bytes_ = ours.filter(pl.col("kind") == "load")["bytes"].sum()
            cluster = math.prod(kernel[f"cluster_{axis}"] or 1 for axis in "xyz")
            assert 0.98 * bytes_ <= number(row[FROM_L2]) <= 1.02 * bytes_ * cluster, message
    if unread:
        pytest.skip(f"ncu has no counters of {unread}")
