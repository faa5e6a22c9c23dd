"""rocmProfileData, on files made here after its schema version 2, by roctracer and by rocprofiler-sdk."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import real_traces
from hypothesis import given
from import_helper import FLIPS, MANY_FILES, import_damaged, imported
from sqlite_builder import SqliteBuilder

from pasta.errors import PastaError
from pasta.importers import detect, import_files


class Rpd(SqliteBuilder):
    """One file; calls are numbered from 1 as they are added."""

    def __init__(self, path: Path, domains: bool = False) -> None:
        super().__init__(path)
        self._domains = domains
        self._calls = 0
        self._operations = 0
        self.add("rocpd_metadata", {"id": 1, "tag": "schema_version", "value": "2"})

    def call(self, name: str, start: int, end: int, arguments: str = "", tid: int = 77, domain: str = "hip") -> int:
        self._calls += 1
        row = {"id": self._calls, "pid": 908, "tid": tid, "start": start, "end": end}
        row |= {"apiName_id": self.text(name), "args_id": self.text(arguments)}
        self.add("rocpd_api", row | ({"domain_id": self.text(domain)} if self._domains else {}))
        return self._calls

    def operation(self, kind: str, start: int, end: int, call: int | None = None, text: str = "") -> None:
        self._operations += 1
        row = {"id": self._operations, "gpuId": 2, "queueId": 0, "sequenceId": 0, "completionSignal": ""}
        row |= {"start": start, "end": end, "description_id": self.text(text), "opType_id": self.text(kind)}
        self.add("rocpd_op", row)
        if call is not None:
            self.add("rocpd_api_ops", {"id": self._operations, "api_id": call, "op_id": self._operations})

    def launch(self, call: int, grid: tuple[int, int, int], block: tuple[int, int, int], name: str = "axpy") -> None:
        row: dict[str, Any] = {"api_ptr_id": call, "stream": "0x0"}
        row |= {f"grid{axis}": size for axis, size in zip("XYZ", grid, strict=True)}
        row |= {f"workgroup{axis}": size for axis, size in zip("XYZ", block, strict=True)}
        row |= {"groupSegmentSize": 512, "privateSegmentSize": 16, "kernelName_id": self.text(name)}
        self.add("rocpd_kernelapi", row)

    def text(self, text: str) -> int:
        return self.string(text, table="rocpd_string", column="string")


@pytest.fixture
def rpd(tmp_path: Path) -> Rpd:
    return Rpd(tmp_path / "trace.rpd")


@pytest.mark.parametrize(
    ("domains", "call", "grid", "blocks", "work_items"),
    [
        (False, "hipLaunchKernel", (4, 2, 1), (4, 2, 1), (None, None, None)),
        (False, "hipExtModuleLaunchKernel", (1000, 2, 1), (4, 1, 1), (1000, 2, 1)),
        (True, "hipLaunchKernel", (1000, 2, 1), (4, 1, 1), (1000, 2, 1)),
    ],
    ids=["blocks", "arguments in work-items", "dispatches in work-items"],
)
def test_grids_become_blocks_whatever_wrote_them(
    tmp_path: Path,
    domains: bool,
    call: str,
    grid: tuple[int, int, int],
    blocks: tuple[int, int, int],
    work_items: tuple[int | None, ...],
) -> None:
    rpd = Rpd(tmp_path / "trace.rpd", domains)
    number = rpd.call(call, 10, 20)
    rpd.launch(number, grid, (256, 2, 1))
    rpd.operation("KernelExecution", 30, 80, number, text="axpy(int)")
    path = rpd.done()
    assert detect(path).value == "rpd"
    trace = imported(path)
    columns = ("grid_x", "grid_y", "grid_z", "global_x", "global_y", "global_z", "block_x", "block_y", "block_z")
    assert trace.rows("kernel", *columns) == [(*blocks, *work_items, 256, 2, 1)]
    common = (
        "pid",
        "thread_id",
        "device_id",
        "stream_id",
        "correlation_id",
        "name",
        "static_shared_bytes",
        "local_bytes",
    )
    assert trace.rows("kernel", *common) == [(908, 77, 2, 0, number, "axpy(int)", 512, 16)]


def test_copies_fills_and_kernels_are_told_apart_by_their_type(rpd: Rpd) -> None:
    for call, kind, size, synchronous in (
        ("hipMemcpyAsync", "CopyHostToDevice", "", 5),
        ("hipMemcpy", "CopyDeviceToHost", 64, 99),
    ):
        number = rpd.call(call, 1, synchronous)
        row = {"api_ptr_id": number, "stream": "0x7f0000001000", "size": size, "kind": 1, "dst": "0x1", "src": "0x2"}
        rpd.add("rocpd_copyapi", row)
        rpd.operation(kind, 10, 50, number)
    rpd.operation("FillBuffer", 60, 70, rpd.call("hipMemsetAsync", 2, 3))
    rpd.operation("Barrier", 80, 81)
    trace = imported(rpd.done())
    columns = ("kind", "bytes", "src_device_id", "dst_device_id", "asynchronous")
    assert trace.rows("memcpy", *columns) == [("h2d", None, None, 2, True), ("d2h", 64, 2, None, False)]
    assert trace.rows("memset", "start_ns", "end_ns", "device_id") == [(60, 70, 2)]
    assert trace.summary.unplaced["rocpd_op of type Barrier"] == 1
    # A stream's address is too large for its number, so it has one of its own and keeps the address as its name.
    (stream,) = {row[0] for row in trace.rows("memcpy", "stream_id", "pid")}
    assert (stream, "0x7f0000001000") in trace.rows("stream", "stream_id", "name")


def test_arguments_of_calls_give_allocations(rpd: Rpd) -> None:
    rpd.call("hipMalloc", 1, 2, "ptr=0x7f95d3c00000 | size=0xa8200000")
    rpd.call("hipHostMalloc", 3, 4, "ptr=0x1000 | size=64")
    rpd.call("hipFree", 5, 6, "ptr=0x7f95d3c00000")
    rpd.call("hipStreamCreate", 7, 8, "stream=0x5")
    trace = imported(rpd.done())
    assert trace.rows("alloc", "action", "object_id", "address", "bytes", "kind", "allocator") == [
        ("alloc", 1, 0x7F95D3C00000, 0xA8200000, "device", "hipMalloc"),
        ("alloc", 2, 0x1000, 64, "pinned", "hipHostMalloc"),
        ("free", 1, 0x7F95D3C00000, 0xA8200000, None, "hipFree"),
    ]
    assert trace.summary.unplaced == {"arguments of a call": 1}


@pytest.mark.parametrize(("domains", "name"), [(False, "UserMarker"), (True, "roctxRangePush")])
def test_markers_are_ranges_and_operators_own_kernels(tmp_path: Path, domains: bool, name: str) -> None:
    rpd = Rpd(tmp_path / "trace.rpd", domains)
    rpd.call(name, 0, 90, "step", domain="roctx")
    rpd.call(name, 5, 80, "aten::mm, seq = 1, op_id = 2", domain="roctx")
    launch = rpd.call("hipLaunchKernel", 10, 20)
    rpd.operation("KernelExecution", 100, 110, launch, text="gemm")
    trace = imported(rpd.done())
    assert trace.rows("range", "name", "kind", "source") == [("step", "push_pop", "roctx")]
    (op,) = trace.rows("op", "op_id")
    assert trace.rows("kernel", "op_id") == [op]
    assert trace.rows("api", "name") == ["hipLaunchKernel"]


def test_driver_events_are_unified_memory(tmp_path: Path) -> None:
    rpd = Rpd(tmp_path / "trace.rpd", domains=True)
    rpd.call("hipMalloc", 0, 1)
    rpd.operation("kfd_page_migrate", 1, 5, text="PAGEFAULT_GPU")
    rpd.operation("kfd_page_fault", 2, 3, text="WRITE_FAULT_MIGRATED")
    assert imported(rpd.done()).rows("uvm", "kind", "cause", "bytes") == [
        ("migrate_h2d", "fault", None),
        ("fault_gpu", "write", None),
    ]


def test_launches_are_numbered_in_the_order_of_their_calls(rpd: Rpd) -> None:
    first, second = rpd.call("hipLaunchKernel", 1, 2), rpd.call("hipLaunchKernel", 3, 4)
    rpd.operation("KernelExecution", 50, 60, second, text="b")
    rpd.operation("KernelExecution", 70, 80, first, text="a")
    assert imported(rpd.done()).rows("kernel", "launch_id", "name") == [(1, "a"), (2, "b")]


def test_an_empty_file_is_nothing_to_import(rpd: Rpd) -> None:
    rpd.call("hipMalloc", 0, 1)
    rpd.operation("KernelExecution", 0, 1)
    path = rpd.done()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("DELETE FROM rocpd_api; DELETE FROM rocpd_op;")
    with pytest.raises(PastaError, match="nothing to import") as error:
        import_files([path], path.parent / "out.pasta")
    assert error.value.exit_code == 2


@MANY_FILES
@given(flips=FLIPS)
def test_damaged_bytes_never_do_more_than_fail_with_a_message(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    whole = tmp_path / "whole.rpd"
    if not whole.exists():
        rpd = Rpd(whole)
        for number in range(20):
            call = rpd.call("hipLaunchKernel", number, number + 1)
            rpd.launch(call, (1, 1, 1), (64, 1, 1))
            rpd.operation("KernelExecution", number, number + 1, call, text=f"kernel{number}")
        rpd.done()
    import_damaged(whole, flips, first=100)


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_a_real_matrix_multiplication(tmp_path: Path) -> None:
    folder = real_traces.folder()
    assert folder is not None
    trace = imported(folder / "rpd" / "matmul_result_large.rpd", into=tmp_path)
    # SELECT * FROM kernel ORDER BY start LIMIT 1, with sqlite3: gridX 3328 by hipExtModuleLaunchKernel, workgroupX 256.
    (gemm,) = [row for row in trace.rows("kernel", "global_x", "grid_x", "block_x", "end_ns", "start_ns") if row[0]]
    assert gemm == (3328, 13, 256, 8380685039194667, 8380684506392296)
    # The five hipMalloc calls whose arguments RPD recorded.
    assert trace.frame("alloc")["bytes"].to_list()[:2] == [0xA8200000, 0x9A00000]
    assert len(trace.rows("alloc")) == 5
