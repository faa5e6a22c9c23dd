"""What the GPU reduces, against every single access: `access_object` beside the table `access` of --memory=trace.

The accesses are counted here, lane by lane, by code that shares nothing with pasta's. They are held against what the
GPU reduced in the same process, where addresses and so all pages are the same, and in another that did the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from recorded import Trace, record
from test_gpu_memory import Measured, sanitizer_libraries

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "small_models.py"
PYTHONPATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
KINDS = ("load", "store", "atomic")
PAGES = {"pages_4k": 12, "pages_64k": 16, "pages_2m": 21}
COLUMNS = [
    "loads", "stores", "atomics", "load_bytes", "store_bytes", "atomic_bytes", *PAGES, "first_offset", "last_offset"
]  # fmt: skip


class Object(NamedTuple):
    object_id: int
    begin: int
    end: int


def expand(rows: pl.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the address and the bytes of each lane's access, and its row."""
    mask = rows["lanes"].to_numpy().astype(np.uint64)
    lanes = sum(((mask >> np.uint64(i)) & np.uint64(1)).astype(np.int64) for i in range(64))
    row = np.repeat(np.arange(rows.height), lanes)
    position = np.arange(len(row)) - np.repeat(np.cumsum(lanes) - lanes, lanes)
    address = rows["address"].to_numpy()[row] + position * rows["stride"].to_numpy()[row]
    return address, rows["bytes"].to_numpy()[row], row


def distinct_pages(address: npt.NDArray[np.int64], size: npt.NDArray[np.int64], shift: int) -> int:
    first, last = address >> shift, (address + size - 1) >> shift
    found = set(np.unique(first).tolist()) | set(np.unique(last).tolist())
    for begin, end in np.unique(np.stack([first, last])[:, last > first + 1], axis=1).T.tolist():
        found |= set(range(begin, end))
    return len(found)


def count(rows: pl.DataFrame, live: list[Object]) -> dict[int | None, dict[str, int]]:
    """Return what the accesses of one launch come to for each object, with the names of `access_object`'s columns."""
    address, size, row = expand(rows)
    kind = rows["kind"].to_numpy()[row]
    begins = np.array([o.begin for o in live])
    index = np.searchsorted(begins, address, side="right") - 1
    ends = np.array([o.end for o in live])
    index = np.where((index >= 0) & (address < ends[index]), index, -1)
    counted = {}
    for at in np.unique(index).tolist():
        mine = index == at
        tally = {f"{k}s": int((mine & (kind == k)).sum()) for k in KINDS}
        tally |= {f"{k}_bytes": int(size[mine & (kind == k)].sum()) for k in KINDS}
        if at >= 0:
            tally |= {name: distinct_pages(address[mine], size[mine], shift) for name, shift in PAGES.items()}
            tally["first_offset"] = int(address[mine].min()) - live[at].begin
            tally["last_offset"] = int((address + size)[mine].max()) - 1 - live[at].begin
        counted[live[at].object_id if at >= 0 else None] = tally
    return counted


def live_objects(run: Measured, time: int) -> list[Object]:
    """Return the memory objects at a time, in order of address. No object of these programs lies in another."""
    made = run.table("alloc").filter(pl.col("address").is_not_null())
    gone = made.filter((pl.col("action") == "free") & (pl.col("start_ns") < time))["object_id"]
    stays = ~pl.col("object_id").is_in(gone.implode())
    here = made.filter((pl.col("action") == "alloc") & (pl.col("start_ns") < time) & stays)
    end = (pl.col("address") + pl.col("bytes")).alias("end")
    return [Object(*row) for row in here.select("object_id", "address", end).sort("address").iter_rows()]


def counted_accesses(run: Measured) -> list[dict[int | None, dict[str, int]]]:
    """Return, launch by launch, what the single accesses come to."""
    accesses = run.table("access").filter(pl.col("space") == "global").partition_by("launch_id", as_dict=True)
    return [
        count(accesses[launch,], live_objects(run, time)) if (launch,) in accesses else {}
        for launch, time in launches(run).select("launch_id", "queued_ns").rows()
    ]


def reduced_accesses(run: Measured) -> list[dict[int | None, dict[str, int]]]:
    """Return the same from `access_object`."""
    rows = run.table("access_object").partition_by("launch_id", as_dict=True)
    return [
        {row["object_id"]: {name: row[name] for name in COLUMNS if row[name] is not None}
         for row in (rows[launch,].to_dicts() if (launch,) in rows else [])}
        for launch in launches(run)["launch_id"]
    ]  # fmt: skip


def launches(run: Measured) -> pl.DataFrame:
    return run.table("kernel").sort("launch_id")


class Recorder:
    """Makes the recordings, each once, and keeps them open."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, dict[tuple[str, str], Measured]()

    def __call__(self, model: str, memory: str) -> Measured:
        if (model, memory) not in self.made:
            self.made[model, memory] = self.record(model, memory)
        return self.made[model, memory]

    def record(self, model: str, memory: str) -> Measured:
        output = self.folder / f"{model}-{memory}.pasta"
        variables = {"PASTA_MEMORY": memory, "PASTA_MEMORY_BUFFER": "2G", "PYTHONPATH": PYTHONPATH}
        variables["PASTA_SANITIZER_HINTS"] = sanitizer_libraries()
        result = record([sys.executable, PROGRAM, model], output, ["-t", "cuda"], **variables)
        assert result.returncode == 0, result.stderr
        run = Measured(Trace.open(output), result)
        lost = run.table("loss").filter(pl.col("table").is_in(["access", "access_object", "kernel", "alloc"]))
        run.check(lost.is_empty())
        return run


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    recorder = Recorder(tmp_path_factory.mktemp("raw"))
    yield recorder
    for run in recorder.made.values():
        run.trace.close()


@pytest.mark.parametrize(("model", "least"), [("resnet18", 40), ("gpt2", 80)])
def test_reduced_and_single_accesses_agree_in_one_process(recorder: Recorder, model: str, least: int) -> None:
    run = recorder(model, "objects,trace")
    counted, reduced = counted_accesses(run), reduced_accesses(run)
    run.check(len(reduced) >= least)  # 20 convolutions with 20 normalizations; 2 layers forward and backward
    for ordinal, (by_access, by_launch) in enumerate(zip(counted, reduced, strict=True)):
        assert by_access == by_launch, f"launch {ordinal}, {launches(run)['name'][ordinal]}"


@pytest.mark.parametrize("model", ["resnet18", "gpt2"])
def test_reduced_and_single_accesses_agree_between_processes(recorder: Recorder, model: str) -> None:
    """Objects have other addresses and numbers there: they are told apart by size and by what was done to them."""
    reduced, single = recorder(model, "objects"), recorder(model, "objects,trace")
    names = [list(launches(run)["name"]) for run in (reduced, single)]
    assert names[0] == names[1]
    found = [anonymous(reduced, reduced_accesses(reduced)), anonymous(single, counted_accesses(single))]
    for ordinal, (by_launch, by_access) in enumerate(zip(*found, strict=True)):
        assert by_launch == by_access, f"launch {ordinal}, {names[0][ordinal]}"


def anonymous(run: Measured, accesses: list[dict[int | None, dict[str, int]]]) -> list[list[tuple[int, ...]]]:
    """Return the objects of each launch without their numbers: sorted sizes and counts.

    How many pages an object has depends on its address unless it begins with a page: those of torch do. Where a launch
    does atomics, its blocks may wait for each other, as those of a convolution do that share a sum: they load a word of
    4 bytes again and again. How often is a matter of time; the bytes of all other loads are not.
    """
    made = run.table("alloc").filter(pl.col("action") == "alloc").select("object_id", "address", "bytes")
    places = {object_id: (address, size) for object_id, address, size in made.iter_rows()}
    found = []
    for launch in accesses:
        rows = []
        for object_id, tally in launch.items():
            address, size = places[object_id] if object_id is not None else (1, -1)
            names = COLUMNS if address % (1 << 21) == 0 else [n for n in COLUMNS if n not in PAGES]
            if tally["atomics"] > 0:
                tally = tally | {"loads": -1, "load_bytes": tally["load_bytes"] - 4 * tally["loads"]}
            rows.append((size, *(tally.get(name, -1) for name in names)))
        found.append(sorted(rows))
    return found
