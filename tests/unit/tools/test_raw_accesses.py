"""The raw path: tables computed from single accesses, on patterns known in closed form and against a plain count."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest
from golden import result_of

from pasta.errors import PastaError
from pasta.tools.analysis.raw_accesses import RawAccesses, array_module
from pasta.tools.testing import MemoryTrace, trace_of

MIB = 1 << 20
FULL = (1 << 32) - 1
A, B, C = 64 * MIB, 80 * MIB, 96 * MIB

Row = dict[str, Any]


def alloc(object_id: int, address: int, size: int, at: int = 0, action: str = "alloc", **more: Any) -> Row:
    return {"start_ns": at, "action": action, "object_id": object_id, "address": address, "bytes": size,
            "kind": "device", "allocator": "device", **more}  # fmt: skip


def warp(execution: int, address: int, stride: int = 4, lanes: int = FULL, size: int = 4, **more: Any) -> Row:
    return {"launch_id": 1, "site_id": 1, "execution": execution, "kind": "load", "space": "global", "lanes": lanes,
            "address": address, "stride": stride, "bytes": size, **more}  # fmt: skip


def computed(access: list[Row], alloc: list[Row], **tables: list[Row]) -> RawAccesses:
    kernel = [{"launch_id": id, "name": "k", "queued_ns": 10 * id} for id in {row["launch_id"] for row in access}]
    return RawAccesses(trace_of(access=access, alloc=alloc, kernel=kernel, **tables))


def rows(trace: RawAccesses, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return trace.table(name).select(columns).collect().rows()


def test_vector_add() -> None:
    # c[i] = a[i] + b[i] of 4,096 floats: 128 warps of 32 lanes, 4 sectors of 32 bytes a warp.
    access = [
        warp(3 * i + j, base + 128 * i, site_id=j, kind="store" if base == C else "load")
        for i in range(128)
        for j, base in enumerate((A, B, C))
    ]
    trace = computed(access, [alloc(1, A, 16384), alloc(2, B, 16384), alloc(3, C, 16384)])
    found = rows(trace, "access_object", "object_id", "loads", "load_bytes", "stores", "store_bytes", "pages_4k",
                 "pages_64k", "pages_2m", "first_offset", "last_offset", "space")  # fmt: skip
    touched = (4, 1, 1, 0, 16383, "global")
    assert found == [(1, 4096, 16384, 0, 0, *touched), (2, 4096, 16384, 0, 0, *touched),
                     (3, 0, 0, 4096, 16384, *touched)]  # fmt: skip
    sites = rows(trace, "access_site", "site_id", "executions", "lanes", "bytes", "sectors", "ideal_sectors",
                 "min_lanes", "max_lanes", "bank_conflicts")  # fmt: skip
    assert sites == [(site, 128, 4096, 16384, 512, 512, 32, 32, None) for site in (0, 1, 2)]
    assert rows(trace, "access_block", "object_id", "offset", "bytes", "accesses", "start_ns") == [
        (id, 0, 16384, 4096, 10) for id in (1, 2, 3)
    ]


@pytest.mark.parametrize(("stride", "sectors"), [(4, 4), (8, 8), (16, 16), (32, 32), (128, 32), (0, 1)])
def test_sectors_of_strides(stride: int, sectors: int) -> None:
    trace = computed([warp(0, A, stride)], [alloc(1, A, MIB)])
    assert rows(trace, "access_site", "sectors", "ideal_sectors") == [(sectors, min(4, sectors))]


@pytest.mark.parametrize(
    ("stride", "size", "lanes", "conflicts"),
    [(4, 4, FULL, 0), (8, 4, FULL, 1), (128, 4, FULL, 31), (132, 4, FULL, 0), (0, 4, FULL, 0), (1, 1, FULL, 0),
     (8, 8, FULL, 0), (16, 16, FULL, 0), (128, 16, 0xFF, 7), (128, 4, 0b11, 1)],
)  # fmt: skip
def test_bank_conflicts(stride: int, size: int, lanes: int, conflicts: int) -> None:
    # 32 banks of 4 bytes; 8 bytes a lane take two passes and 16 four, which is no conflict.
    trace = computed([warp(0, 1024, stride, lanes, size, space="shared")], [alloc(1, 0, MIB)])
    assert rows(trace, "access_site", "bank_conflicts", "sectors", "space") == [(conflicts, None, "shared")]
    assert trace.table("access_object").collect().is_empty()


def test_bulk_copy_ends_with_its_object() -> None:
    trace = computed([warp(0, A + 4096, 0, 1, 100 * 4096)], [alloc(1, A, 3 * 4096)])
    columns = ("loads", "load_bytes", "pages_4k", "first_offset", "last_offset")
    assert rows(trace, "access_object", *columns) == [(1, 100 * 4096, 2, 4096, 3 * 4096 - 1)]
    assert rows(trace, "access_site", "sectors", "ideal_sectors", "lanes") == [(100 * 128, 100 * 128, 1)]


def test_memory_as_it_was_when_the_launch_began() -> None:
    memory = [alloc(1, A, MIB, 0), alloc(1, A, MIB, 15, "free"), alloc(2, A + 4096, MIB, 16)]
    trace = computed([warp(0, A), warp(0, A, launch_id=2), warp(1, A + 8192, launch_id=2)], memory)
    found = rows(trace, "access_object", "launch_id", "object_id", "loads", "first_offset", "pages_4k")
    assert found == [(1, 1, 32, 0, 1), (2, 2, 32, 4096, 1), (2, None, 32, None, None)]


def test_blocks_begin_anew_at_multiples_of_4_gib() -> None:
    # As on the device, where a range lies between two of them.
    border = 1 << 32
    trace = computed([warp(0, border - 64), warp(1, border + 4096)], [alloc(1, border - MIB, 8 * MIB)])
    found = rows(trace, "access_block", "offset", "bytes", "accesses")
    assert found == [(0, MIB, 16), (MIB, 2 * MIB, 16 + 32)]
    assert rows(trace, "access_object", "loads", "pages_4k", "first_offset") == [(64, 3, MIB - 64)]


def test_tensors_cut_objects_and_reservations() -> None:
    reserved = alloc(1, A, 64 * MIB, kind="virtual", allocator="reservation")
    tensor = {"start_ns": 1, "action": "alloc", "tensor_id": 7, "address": A + 64, "bytes": 64}
    other = {"start_ns": 2, "action": "alloc", "tensor_id": 8, "address": B + 4096, "bytes": 4096}
    trace = computed([warp(0, A, 8), warp(1, B + 4096 - 64)], [reserved, alloc(2, B, MIB)], tensor=[tensor, other])
    columns = ("object_id", "tensor_id", "loads", "first_offset", "last_offset", "pages_4k")
    # Lanes 0 to 7 and 16 on are in the reservation, of which pages are not counted; 8 to 15 are in the tensor.
    assert rows(trace, "access_object", *columns) == [
        (1, None, 24, 0, 251, None), (1, 7, 8, 64, 123, 1), (2, None, 16, 4032, 4095, 1), (2, 8, 16, 4096, 4159, 1)
    ]  # fmt: skip


def test_random_accesses_against_a_plain_count() -> None:
    dice = random.Random(3)
    memory, at = [], MIB
    for id in range(20):
        size = 16 + dice.randrange(3 * MIB) // 16 * 16
        memory.append(alloc(id, at, size))
        at += (size + dice.randrange(8192)) // 16 * 16 + 16
    access: list[Row] = []
    loads, pages, sectors = Counter[int | None](), defaultdict[int | None, set[int]](set), Counter[int]()
    blocks, lane_counts = Counter[tuple[int, int]](), defaultdict[int, set[int]](set)
    for execution in range(1500):
        size, site = 1 << dice.randrange(5), dice.randrange(8)
        taken = sorted(dice.sample(range(32), dice.randint(1, 32)))
        touched = set()
        for lane in taken:
            holder = dice.choice(memory)
            address = (holder["address"] + dice.randrange(holder["bytes"] + 64)) // size * size
            access.append(warp(execution, address, 0, 1 << lane, size, site_id=site))
            touched.add(address // 32)
            owner = next((row for row in memory if 0 <= address - row["address"] < row["bytes"]), None)
            loads[owner and owner["object_id"]] += 1
            if owner:
                pages[owner["object_id"]].add(address // 4096)
                blocks[owner["object_id"], (address - owner["address"]) // (2 * MIB) * 2 * MIB] += 1
        sectors[site] += len(touched)
        lane_counts[site].add(len(taken))
    trace = computed(access, memory)
    assert dict(rows(trace, "access_object", "object_id", "loads")) == loads
    for name, ratio in (("pages_4k", 1), ("pages_64k", 16), ("pages_2m", 512)):
        expected = {id: len({page // ratio for page in touched}) for id, touched in pages.items()}
        assert {id: n for id, n in rows(trace, "access_object", "object_id", name) if id is not None} == expected
    assert dict(rows(trace, "access_site", "site_id", "sectors")) == sectors
    assert rows(trace, "access_site", "site_id", "min_lanes", "max_lanes") == [
        (site, min(counts), max(counts)) for site, counts in sorted(lane_counts.items())
    ]
    assert {(id, at): n for id, at, n in rows(trace, "access_block", "object_id", "offset", "accesses")} == blocks


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    access = [warp(i, A + 64 * i, lanes=1 << lane) for i in range(300) for lane in (0, 5, 7)]
    names = ("access_object", "access_site", "access_block")
    whole = [computed(access, [alloc(1, A, MIB)]).table(name).collect().rows() for name in names]
    monkeypatch.setattr("pasta.tools.analysis.raw_launch._CHUNK", 64)
    assert [computed(access, [alloc(1, A, MIB)]).table(name).collect().rows() for name in names] == whole


def test_tools_run_on_it() -> None:
    trace = computed([warp(0, A, 128)], [alloc(1, A, MIB)])
    assert result_of("workingset", trace).table("workingset").frame["max_bytes"].to_list()[0] == 4096
    assert result_of("coalescing", trace).table("sites").frame["sectors"].to_list() == [32]
    assert result_of("hotness", trace).table("objects").frame["accesses"].to_list() == [32]
    assert {"access_object", "access_site", "access_block", "access"} <= trace.present


def test_a_trace_without_accesses_says_so() -> None:
    with pytest.raises(PastaError, match="no single accesses"):
        RawAccesses(MemoryTrace({"kernel": pl.DataFrame()}))


def test_a_missing_module_says_what_to_install() -> None:
    with pytest.raises(PastaError, match="cannot be used"):
        array_module("no_such_array_module")
