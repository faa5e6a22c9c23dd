"""rocpd databases, made here after the tables of rocprofiler-sdk's schema versions 3 and 4."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import real_traces
from hypothesis import given
from hypothesis import strategies as st
from import_helper import FLIPS, MANY_FILES, import_damaged, imported
from sqlite_builder import SqliteBuilder

from pasta.errors import PastaError
from pasta.importers import detect, import_files

GPU_DETAILS = {
    "node_id": 4,
    "type": 2,
    "name": "gfx942",
    "product_name": "MI300X",
    "cu_count": 304,
    "wave_front_size": 64,
}


class Rocpd:
    """The tables of one process in a file that may hold several."""

    def __init__(self, file: SqliteBuilder, guid: str, pid: int = 908, version: int = 3) -> None:
        self._file = file
        self._guid = guid
        self._suffix = f"_{guid}"
        self._version = version
        self._strings: dict[str, int] = {}
        self._rows = 0
        self._add("rocpd_metadata", tag="schema_version", value=str(version))
        self._add("rocpd_info_node", id=1, hostname="mi300")
        self._add("rocpd_info_process", id=pid, nid=1, pid=pid, start=5, end=9000, command="./app")
        self._add("rocpd_info_thread", id=77, nid=1, pid=pid, tid=77, name="worker")
        self._add("rocpd_info_agent", id=0, type="CPU", absolute_index=0, name="EPYC", product_name=None, extdata="{}")
        gpu = {"name": "gfx942", "product_name": "MI300X", "extdata": json.dumps(GPU_DETAILS)}
        self._add("rocpd_info_agent", id=4, type="GPU", absolute_index=4, **gpu)
        self._add("rocpd_info_stream", id=2, pid=pid, name="Stream 1")
        symbol = {"kernel_name": "_Z4axpyi.kd", "display_name": "axpy(int)"}
        self._add("rocpd_info_kernel_symbol", id=7, group_segment_size=1024, arch_vgpr_count=24, **symbol)
        self._place = {"nid": 1, "pid": pid, "tid": 77}
        if version == 4:
            self._add("rocpd_track", id=1, **self._place, agent_id=4, queue_id=3, stream_id=2, name_id=None)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self._add("rocpd_string", id=self._strings[text], string=text)
        return self._strings[text]

    def event(self, category: str, correlation: int = 0, details: Any = None) -> int:
        self._rows += 1
        extra = json.dumps(details) if details is not None else "{}"
        self._add("rocpd_event", id=self._rows, category_id=self.string(category), stack_id=correlation, extdata=extra)
        return self._rows

    def region(self, category: str, name: str, start: int, end: int, correlation: int = 0, details: Any = None) -> None:
        event = self.event(category, correlation, details)
        self._timed("rocpd_region", start, end, name_id=self.string(name), event_id=event)

    def mark(self, category: str, time: int, details: Any = None) -> None:
        event = self.event(category, 1, details)
        track = event + 100
        self._add(
            "rocpd_track",
            id=track,
            **self._place,
            agent_id=None,
            queue_id=None,
            stream_id=None,
            name_id=self.string(category),
        )
        self._add("rocpd_sample", id=event, track_id=track, timestamp=time, event_id=event)

    def dispatch(self, start: int, end: int, grid: int, block: int, correlation: int = 0) -> None:
        sizes = {f"grid_size_{axis}": size for axis, size in zip("xyz", (grid, 1, 1), strict=True)}
        sizes |= {f"workgroup_size_{axis}": size for axis, size in zip("xyz", (block, 1, 1), strict=True)}
        event = self.event("KERNEL_DISPATCH", correlation)
        segments = {"private_segment_size": 16, "group_segment_size": 3072}
        self._timed(
            "rocpd_kernel_dispatch", start, end, kernel_id=7, dispatch_id=12, event_id=event, **sizes, **segments
        )

    def copy(self, start: int, end: int, name: str, size: int, source: int, target: int) -> None:
        ends = {"src_agent_id": source, "dst_agent_id": target}
        event = self.event("MEMORY_COPY")
        self._timed("rocpd_memory_copy", start, end, name_id=self.string(name), size=size, event_id=event, **ends)

    def memory(self, start: int, action: str, level: str, address: int, size: int) -> None:
        event = self.event("MEMORY_ALLOCATION")
        what = {"type": action, "level": level, "address": address, "size": size}
        self._timed("rocpd_memory_allocate", start, start + 1, event_id=event, **what)

    def _timed(self, table: str, start: int, end: int, **columns: Any) -> None:
        self._rows += 1
        if self._version == 3:
            where = {**self._place, "start": start, "end": end, "agent_id": 4, "queue_id": 3, "stream_id": 2}
        else:
            for number, time in ((2 * self._rows, start), (2 * self._rows + 1, end)):
                self._add("rocpd_timestamp", id=number, value=time, track_id=1)
            where = {"track_id": 1, "start_id": 2 * self._rows, "end_id": 2 * self._rows + 1}
        self._add(table, id=self._rows, **where, **columns)

    def _add(self, table: str, **columns: Any) -> None:
        self._file.add(f"{table}{self._suffix}", {"guid": self._guid, **columns})


@pytest.fixture
def file(tmp_path: Path) -> SqliteBuilder:
    return SqliteBuilder(tmp_path / "results.db")


@pytest.mark.parametrize("version", [3, 4])
def test_both_schema_versions_give_the_same_rows(file: SqliteBuilder, version: int) -> None:
    process = Rocpd(file, "aa", version=version)
    process.region("HIP_RUNTIME_API_EXT", "hipLaunchKernel", 10, 20, correlation=5)
    process.dispatch(30, 90, grid=1000, block=256, correlation=5)
    process.copy(95, 99, "MEMORY_COPY_DEVICE_TO_HOST", 4096, 4, 0)
    path = file.done()
    assert detect(path).value == "rocpd"
    trace = imported(path)
    assert trace.summary.version == str(version)
    assert trace.rows("kernel") == [
        {
            **{"pid": 908, "start_ns": 30, "end_ns": 90, "thread_id": 77, "device_id": 4, "stream_id": 2},
            **{"correlation_id": 5, "launch_id": 12, "name": "axpy(int)", "mangled": "_Z4axpyi"},
            **{"grid_x": 4, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1},
            **{"global_x": 1000, "global_y": 1, "global_z": 1, "registers": 24, "local_bytes": 16},
            **{"static_shared_bytes": 1024, "dynamic_shared_bytes": 2048},
        }
    ]
    assert trace.rows("api", "pid", "thread_id", "api", "name", "correlation_id") == [
        (908, 77, "hip", "hipLaunchKernel", 5),
    ]
    assert trace.rows("memcpy", "kind", "bytes", "src_device_id", "dst_device_id") == [("d2h", 4096, 4, None)]
    assert trace.rows("device", "device_id", "name", "architecture", "warp_size") == [(4, "MI300X", "gfx942", 64)]
    assert trace.rows("process", "pid", "start_ns", "end_ns", "host", "command") == [(908, 5, 9000, "mi300", "./app")]
    assert trace.rows("thread", "thread_id", "name") == [(77, "worker")]
    assert trace.rows("stream", "stream_id", "name") == [(2, "Stream 1")]


def test_processes_of_a_merged_file_keep_their_own_ids(file: SqliteBuilder) -> None:
    for guid, pid, name in (("aa", 1, "first"), ("bb", 2, "second")):
        process = Rocpd(file, guid, pid=pid)
        process.region("MARKER_CORE_RANGE_API", "roctxThreadRangeA", 1, 9, details={"message": name})
        process.dispatch(10, 20 * pid, grid=1, block=1)
    path = file.done()
    database = sqlite3.connect(path)
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE name LIKE '%_aa'")]
    for table in tables:
        plain = table.removesuffix("_aa")
        database.execute(f'CREATE VIEW {plain} AS SELECT * FROM "{table}" UNION ALL SELECT * FROM "{plain}_bb"')
    database.close()
    trace = imported(path)
    assert sorted(trace.rows("kernel", "pid", "end_ns")) == [(1, 20), (2, 40)]
    assert sorted(trace.rows("range", "pid", "name")) == [(1, "first"), (2, "second")]


def test_ids_count_within_a_guid_even_in_one_table(tmp_path: Path) -> None:
    file = SqliteBuilder(tmp_path / "plain.db")
    file.add("rocpd_metadata", {"id": 1, "tag": "schema_version", "value": "3"})
    for number, (guid, name) in enumerate((("g1", "one"), ("g2", "two"))):
        file.add("rocpd_info_agent", {"rowid_": number, "guid": guid})
        file.add("rocpd_string", {"key": number, "guid": guid, "string": name})
    database = sqlite3.connect(file.done())
    # What a merge by hand looks like: ids repeat, so they are no primary keys.
    database.execute("ALTER TABLE rocpd_string RENAME COLUMN key TO id")
    database.execute("UPDATE rocpd_string SET id = 1")
    database.execute("CREATE TABLE rocpd_region (guid, pid, tid, start, end, name_id)")
    database.executemany("INSERT INTO rocpd_region VALUES (?, 1, 1, ?, ?, 1)", [("g1", 0, 1), ("g2", 2, 3)])
    database.commit()
    database.close()
    assert imported(file.path).rows("range", "start_ns", "name") == [(0, "one"), (2, "two")]


def test_markers_own_the_calls_and_kernels_in_them(file: SqliteBuilder) -> None:
    process = Rocpd(file, "aa")
    process.region(
        "MARKER_CORE_RANGE_API", "roctxThreadRangeA", 1, 50, details={"message": "aten::mm, seq = 4, op_id = 2"}
    )
    process.region("MARKER_CORE_RANGE_API", "roctxProcessRangeA", 0, 60, details={"message": "whole"})
    process.mark("MARKER_CORE_RANGE_API", 7, details={"message": "here"})
    process.mark("HIP_RUNTIME_API_EXT", 8)
    process.region("HIP_RUNTIME_API_EXT", "hipLaunchKernel", 10, 20, correlation=5)
    process.dispatch(70, 80, grid=1, block=1, correlation=5)
    trace = imported(file.done())
    (op,) = trace.rows("op", "op_id")
    assert trace.rows("kernel", "op_id") == [op]
    assert sorted(trace.rows("range", "name", "kind", "start_ns", "end_ns")) == [
        ("here", "mark", 7, 7),
        ("whole", "start_end", 0, 60),
    ]
    # A call that took no time is a sample without a name of its own.
    assert sorted(trace.rows("api", "start_ns", "end_ns", "name"), key=lambda row: row[0]) == [
        (8, 8, None),
        (10, 20, "hipLaunchKernel"),
    ]


def test_ranges_of_other_tools_are_not_called_roctx(file: SqliteBuilder) -> None:
    Rocpd(file, "aa").region("rocprofsys_user", "main", 1, 50)
    assert imported(file.done()).rows("range", "name", "category", "source") == [("main", "rocprofsys_user", "unknown")]


def test_allocations_and_frees_follow_their_level(file: SqliteBuilder) -> None:
    process = Rocpd(file, "aa")
    process.memory(1, "ALLOC", "REAL", 0x1000, 256)
    process.memory(3, "FREE", "REAL", 0x1000, 0)
    process.memory(5, "ALLOC", "VIRTUAL", 0x2000, 4096)
    process.memory(7, "ALLOC", "SCRATCH", 0x3000, 64)
    process.memory(9, "RECLAIM", "REAL", 0x4000, 64)
    trace = imported(file.done())
    assert trace.rows("alloc", "action", "object_id", "bytes", "kind", "device_id") == [
        ("alloc", 1, 256, "device", 4),
        ("free", 1, 256, "device", 4),
        ("alloc", 2, 4096, "virtual", 4),
    ]
    assert trace.summary.unplaced == {"SCRATCH ALLOC of memory": 1, "REAL RECLAIM of memory": 1}


@pytest.mark.parametrize("wrap", [lambda record: record, lambda record: {"record": {"index": 1, "data": record}}])
def test_driver_events_are_unified_memory(file: SqliteBuilder, wrap: Any) -> None:
    process = Rocpd(file, "aa")
    migration = {
        "start_address": 0x10000,
        "end_address": 0x12000,
        "src_agent_id": 4,
        "dst_agent_id": 0,
        "error_code": 0,
    }
    process.region("KFD_PAGE_MIGRATE", "KFD_PAGE_MIGRATE_TTM_EVICTION", 1, 4, details={"kfd": wrap(migration)})
    fault = {"agent_id": 4, "address": 0x10000}
    process.region("KFD_PAGE_FAULT", "KFD_PAGE_FAULT_READ_FAULT_MIGRATED", 5, 6, details={"kfd": wrap(fault)})
    process.region("KFD_QUEUE", "KFD_QUEUE_EVICT_SVM", 7, 8, details={"kfd": {"agent_id": 4}})
    trace = imported(file.done())
    assert trace.rows("uvm", "kind", "cause", "address", "bytes", "src_device_id", "dst_device_id") == [
        ("migrate_d2h", "eviction", 0x10000, 8192, 4, None),
        ("fault_gpu", "read", 0x10000, None, None, 4),
    ]
    assert trace.summary.unplaced == {"KFD_QUEUE event": 1}


def test_what_has_no_place_is_counted(file: SqliteBuilder) -> None:
    process = Rocpd(file, "aa")
    process.dispatch(1, 2, grid=1, block=1)
    file.add("rocpd_pmc_event_aa", {"id": 1, "value": 3.0}, {"id": 2, "value": 4.0})
    assert imported(file.done()).summary.unplaced == {"rocpd_pmc_event": 2}


def test_a_database_without_events_is_nothing_to_import(file: SqliteBuilder) -> None:
    Rocpd(file, "aa")
    path = file.done()
    with pytest.raises(PastaError, match="nothing to import") as error:
        import_files([path], path.parent / "out.pasta")
    assert error.value.exit_code == 2


def test_a_view_that_never_ends_is_not_run(file: SqliteBuilder) -> None:
    process = Rocpd(file, "aa")
    process.dispatch(1, 2, grid=1, block=1)
    path = file.done()
    database = sqlite3.connect(path)
    database.execute(
        "CREATE VIEW rocpd_kernel_dispatch AS WITH RECURSIVE more(start) AS (SELECT 1 UNION ALL SELECT start FROM more)"
        " SELECT * FROM more"
    )
    database.close()
    assert imported(path).rows("kernel", "start_ns") == [1]


@MANY_FILES
@given(
    dispatches=st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 2**40), st.integers(1, 2**30)), min_size=1, max_size=10
    ),
    version=st.sampled_from([3, 4]),
)
def test_dispatches_round_trip(tmp_path: Path, dispatches: list[tuple[int, int, int]], version: int) -> None:
    path = tmp_path / "generated.db"
    path.unlink(missing_ok=True)
    file = SqliteBuilder(path)
    process = Rocpd(file, "aa", version=version)
    for start, duration, grid in dispatches:
        process.dispatch(start, start + duration, grid=grid, block=1)
    want = sorted((start, start + duration, grid, grid) for start, duration, grid in dispatches)
    trace = imported(file.done())
    assert sorted(trace.rows("kernel", "start_ns", "end_ns", "global_x", "grid_x")) == want


@MANY_FILES
@given(flips=FLIPS)
def test_damaged_bytes_never_do_more_than_fail_with_a_message(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    whole = tmp_path / "whole.db"
    if not whole.exists():
        file = SqliteBuilder(whole)
        process = Rocpd(file, "aa")
        for number in range(20):
            process.dispatch(number, number + 1, grid=64, block=64)
            process.region("HIP_RUNTIME_API", "hipMalloc", number, number + 1)
        file.done()
    import_damaged(whole, flips, first=100)


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_a_public_database_of_schema_3(tmp_path: Path) -> None:
    folder = real_traces.folder()
    assert folder is not None
    trace = imported(folder / "rocprofv3" / "bt2_test_rocm_database.db", into=tmp_path)
    # SELECT start, end, grid_size_x, workgroup_size_x FROM rocpd_kernel_dispatch, with sqlite3; grids as quotients.
    columns = ("pid", "start_ns", "end_ns", "name", "grid_x", "grid_y", "block_x", "block_y")
    assert trace.rows("kernel", *columns) == [
        (1234, 1001500000, 1003500000, "vector_add_kernel", 4, 1, 256, 1),
        (1234, 1002000000, 1003000000, "matrix_multiply_kernel", 4, 4, 16, 16),
    ]
    assert trace.rows("memcpy", "bytes") == [1 << 20, 1 << 20]
    assert trace.summary.unplaced == {"sample": 20}
