"""Nsight Systems exports, on small ones made here after NVIDIA's description of the tables."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import real_traces
from hypothesis import given
from hypothesis import strategies as st
from import_helper import FLIPS, MANY_FILES, beside, import_damaged, imported
from nsys_export import NsysExport, global_pid, global_tid

from pasta.errors import PastaError
from pasta.importers import detect, import_files

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def export(tmp_path: Path) -> NsysExport:
    return NsysExport(tmp_path / "report.sqlite")


def test_a_kernel_keeps_all_that_its_record_says(export: NsysExport) -> None:
    export.call("cudaLaunchKernel_v7000", 100, 120, correlation=5)
    export.kernel(
        "axpy",
        130,
        230,
        correlation=5,
        mangledName=export.string("_Z4axpyi"),
        **{"gridX": 4, "gridY": 3, "gridZ": 2, "blockX": 32, "blockY": 8, "blockZ": 1},
        **{"registersPerThread": 24, "staticSharedMemory": 512, "dynamicSharedMemory": 1024},
        **{"localMemoryPerThread": 16, "clusterX": 2, "clusterY": 1, "clusterZ": 1, "graphNodeId": 77, "graphId": 3},
    )
    trace = imported(export.done())
    assert trace.rows("kernel") == [
        {
            **{"pid": 10, "start_ns": 130, "end_ns": 230, "thread_id": 11, "device_id": 0, "context_id": 1},
            **{"stream_id": 7, "correlation_id": 5, "launch_id": 1, "name": "void axpy(int)", "mangled": "_Z4axpyi"},
            **{"grid_x": 4, "grid_y": 3, "grid_z": 2, "block_x": 32, "block_y": 8, "block_z": 1},
            **{"cluster_x": 2, "cluster_y": 1, "cluster_z": 1, "registers": 24, "static_shared_bytes": 512},
            **{"dynamic_shared_bytes": 1024, "local_bytes": 16, "graph_id": 3, "graph_node_id": 77},
        }
    ]
    assert trace.rows("api", "name", "api", "result") == [("cudaLaunchKernel", "cuda_runtime", 0)]


def test_correlation_ids_count_within_a_process(export: NsysExport) -> None:
    for pid, tid in ((10, 11), (20, 21)):
        export.call("cudaLaunchKernel", 1, 2, pid=pid, tid=tid, correlation=5)
        export.kernel("axpy", 10, 20, pid=pid, correlation=5)
    trace = imported(export.done())
    assert sorted(trace.rows("kernel", "pid", "thread_id", "launch_id")) == [(10, 11, 1), (20, 21, 1)]
    assert sorted(trace.rows("process", "pid")) == [10, 20]


def test_launches_are_numbered_in_the_order_of_their_calls(export: NsysExport) -> None:
    export.kernel("second", 10, 20, correlation=6)
    export.kernel("first", 30, 40, correlation=5)
    trace = imported(export.done())
    assert sorted(trace.rows("kernel", "launch_id", "name")) == [(1, "void first(int)"), (2, "void second(int)")]


def test_a_trimmed_export_keeps_its_kernels_and_says_what_they_miss(tmp_path: Path) -> None:
    export = NsysExport(tmp_path / "trimmed.sqlite")
    export.add(KERNEL, {"start": 5, "end": 9, "shortName": 1}, {"start": 7, "end": 8, "shortName": 2})
    trace = imported(export.done())
    assert trace.rows("kernel", "start_ns", "end_ns", "name", "device_id", "grid_x", "registers") == [
        (5, 9, None, None, None, None),
        (7, 8, None, None, None, None),
    ]
    assert trace.summary.unmatched == {"kernel whose launching call is not in the file": 2}


def test_copies_know_their_devices_and_whether_the_call_waited(export: NsysExport) -> None:
    export.call("cudaMemcpyAsync_v3020", 0, 5, correlation=1)
    export.call("cudaMemcpy_v3020", 10, 30, correlation=2)
    export.copy(1, 4096, 6, 9, correlation=1)
    export.copy(2, 64, 12, 20, correlation=2, srcKind=2, dstKind=1)
    export.copy(10, 8, 40, 41, srcKind=2, dstKind=2, srcDeviceId=0, dstDeviceId=3)
    export.copy(99, 8, 50, 51)
    columns = ("kind", "bytes", "src_kind", "dst_kind", "src_device_id", "dst_device_id", "asynchronous")
    assert imported(export.done()).rows("memcpy", *columns) == [
        ("h2d", 4096, "pageable", "device", None, 0, True),
        ("d2h", 64, "device", "pinned", 0, None, False),
        ("p2p", 8, "device", "device", 0, 3, None),
        ("unknown", 8, "pageable", "device", None, None, None),
    ]


def test_migrations_of_unified_memory_are_no_copies(export: NsysExport) -> None:
    place = {"srcKind": 7, "dstKind": 7, "streamId": 0, "contextId": 0, "deviceId": 1}
    for kind, cause in ((11, 1), (12, 2), (11, 3), (12, 4), (13, 5)):
        export.copy(kind, 4096, 10, 12, migrationCause=cause, virtualAddress=0x7F0000, **place)
    export.copy(8, 100, 20, 30)
    trace = imported(export.done())
    assert trace.rows("uvm", "kind", "cause", "src_device_id", "dst_device_id", "stream_id", "address", "bytes") == [
        ("migrate_h2d", "prefetch", None, 1, None, 0x7F0000, 4096),
        ("migrate_d2h", "fault", 1, None, None, 0x7F0000, 4096),
        ("migrate_h2d", "speculative", None, 1, None, 0x7F0000, 4096),
        ("migrate_d2h", "eviction", 1, None, None, 0x7F0000, 4096),
        ("migrate_d2d", "access_counter", 1, None, None, 0x7F0000, 4096),
    ]
    assert trace.rows("memcpy", "kind") == ["d2d"]
    assert trace.rows("stream", "stream_id") == [7]


def test_the_files_own_enumerations_come_before_the_known_ones(export: NsysExport) -> None:
    names = {1: "CUDA_MEMCPY_KIND_DTOH", 40: "CUDA_MEMCPY_KIND_HTOD", 41: "CUDA_MEMCPY_KIND_UVM_HTOD"}
    export.add("ENUM_CUDA_MEMCPY_OPER", *({"id": number, "name": name} for number, name in names.items()))
    for kind in (1, 8, 40, 41):
        export.copy(kind, 1, 0, 1)
    trace = imported(export.done())
    assert trace.rows("memcpy", "kind") == ["d2h", "d2d", "h2d"]
    assert trace.rows("uvm", "kind") == ["migrate_h2d"]


def test_page_faults_follow_nvidias_description(export: NsysExport) -> None:
    fault = {"globalPid": global_pid(10), "address": 0x7F001000}
    export.add(
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        {"start": 1, "end": 5, "deviceId": 2, "numberOfPageFaults": 12, "faultAccessType": 2, **fault},
    )
    instruction = {"CpuInstruction": export.string("main"), "module": export.string("a.out"), "sourceLine": 12}
    export.add("CUDA_UM_CPU_PAGE_FAULT_EVENTS", {"start": 3, "originalFaultPc": 0x400123, **instruction, **fault})
    trace = imported(export.done())
    assert trace.rows("uvm", "kind", "start_ns", "end_ns", "address", "cause", "count", "dst_device_id") == [
        ("fault_gpu", 1, 5, 0x7F001000, "write", 12, 2),
        ("fault_cpu", 3, None, 0x7F001000, None, 1, None),
    ]
    assert trace.summary.unplaced["CUDA_UM_CPU_PAGE_FAULT_EVENTS.sourceLine"] == 1


def test_a_free_is_joined_with_its_allocation_and_takes_its_size(export: NsysExport) -> None:
    def usage(start: int, operation: int, address: int, size: int, kind: int = 2, pool: int | None = None) -> None:
        row = {"start": start, "globalPid": global_pid(10), "deviceId": 0, "contextId": 1, "address": address}
        row |= {"bytes": size, "memKind": kind, "memoryOperationType": operation, "correlationId": 0, "name": None}
        export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", row | {"localMemoryPoolAddress": pool})

    usage(1, 0, 0x1000, 256)
    usage(2, 0, 0x2000, 64, kind=1)
    usage(3, 1, 0x1000, 0)
    usage(4, 0, 0x1000, 512, pool=0x9000)
    usage(5, 1, 0x1000, 512)
    usage(6, 1, 0x5000, 8)
    trace = imported(export.done())
    assert trace.rows("alloc", "action", "object_id", "address", "bytes", "kind") == [
        ("alloc", 1, 0x1000, 256, "device"),
        ("alloc", 2, 0x2000, 64, "pinned"),
        ("free", 1, 0x1000, 256, "device"),
        ("alloc", 3, 0x1000, 512, "pool"),
        ("free", 3, 0x1000, 512, "device"),
        ("free", None, 0x5000, 8, "device"),
    ]
    assert trace.summary.unmatched == {"free of memory whose allocation is not in the file": 1}


def test_operators_of_emit_nvtx_nest_and_own_the_kernels_launched_in_them(export: NsysExport) -> None:
    export.nvtx("aten::linear, seq = 7, op_id = 100, sizes = [[8, 16], [4, 16]]", 0, 100)
    export.nvtx("aten::addmm, seq = 7, op_id = 101, sizes = [[4], [8, 16]], input_op_ids = [(3, 0)]", 10, 90)
    export.nvtx("autograd::engine::evaluate_function: AddmmBackward0, op_id = 102", 0, 50, tid=12)
    export.nvtx("aten::mm, op_id = 103", 5, 40, tid=12)
    export.nvtx("Optimizer.step#SGD.step, op_id = 104", 200, 300)
    export.nvtx("aten::add_, op_id = 105", 210, 220)
    export.call("cudaLaunchKernel", 20, 30, correlation=1)
    export.call("cudaLaunchKernel", 95, 96, correlation=2)
    export.call("cudaLaunchKernel", 150, 160, correlation=3)
    for correlation in (1, 2, 3):
        export.kernel("gemm", 400 + correlation, 500, correlation=correlation)
    trace = imported(export.done())
    columns = ("name", "parent_id", "phase", "sequence", "shapes")
    ops = {row[0]: row[1:] for row in trace.frame("op").select("op_id", *columns).rows()}
    by_name = {values[0]: number for number, values in ops.items()}
    linear, addmm = by_name["aten::linear"], by_name["aten::addmm"]
    backward = by_name["autograd::engine::evaluate_function: AddmmBackward0"]
    assert ops[linear] == ("aten::linear", None, "forward", 7, "[[8, 16], [4, 16]]")
    assert ops[addmm] == ("aten::addmm", linear, "forward", 7, "[[4], [8, 16]]")
    assert ops[by_name["aten::mm"]] == ("aten::mm", backward, "backward", None, None)
    assert ops[by_name["aten::add_"]][2] == "optimizer"
    assert trace.rows("kernel", "correlation_id", "op_id") == [(1, addmm), (2, linear), (3, None)]


def test_other_ranges_keep_domain_category_and_nesting(export: NsysExport) -> None:
    export.nvtx("TensorRT", 0, None, kind=75, domainId=2)
    export.nvtx("io", 0, None, kind=33, domainId=2, category=5)
    export.nvtx("loader", 0, None, kind=39, tid=13)
    export.nvtx(None, 10, 50, textId=export.string("step"), domainId=2, category=5)
    export.nvtx("inner", 20, 30, domainId=2)
    export.nvtx("mark", 25, None, kind=34)
    export.nvtx("async", 5, 60, kind=60, domainId=9)
    export.nvtx("never popped", 70, None, tid=13)
    trace = imported(export.done())
    rows = {row["name"]: row for row in trace.rows("range")}
    assert rows["step"].items() >= {"domain": "TensorRT", "category": "io", "kind": "push_pop"}.items()
    assert rows["inner"]["parent_id"] == rows["step"]["range_id"]
    assert rows["mark"].items() >= {"kind": "mark", "start_ns": 25, "end_ns": 25}.items()
    assert rows["async"].items() >= {"kind": "start_end", "domain": "domain 9"}.items()
    assert "parent_id" not in rows["mark"]
    assert "end_ns" not in rows["never popped"]
    assert trace.rows("thread", "thread_id", "name") == [(11, None), (13, "loader")]


def test_a_graph_that_was_traced_as_one_is_one_row_and_a_note(export: NsysExport) -> None:
    export.call("cudaGraphLaunch_v10000", 0, 4, correlation=9)
    export.add(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        {**export.work(10, 90, 10, 9), "graphId": 3, "graphExecId": 8},
    )
    trace = imported(export.done())
    assert trace.rows("kernel", "name", "graph_id", "start_ns", "end_ns", "grid_x", "thread_id") == [
        ("CUDA graph 8", 8, 10, 90, None, 11)
    ]
    assert any("--cuda-graph-trace=node" in note for note in trace.summary.notes)


def test_a_wait_is_named_by_its_call_because_old_records_are_wrong(export: NsysExport) -> None:
    export.add("TARGET_INFO_CUDA_CONTEXT_INFO", {"processId": 10, "contextId": 1, "deviceId": 3})
    export.call("cudaDeviceSynchronize_v3020", 0, 9, correlation=1)
    nothing = 0xFFFFFFFF
    for correlation, kind, event in ((1, 1, nothing), (0, 1, nothing), (0, 1, 4), (0, 3, nothing), (0, 2, 4)):
        row = export.work(1, 8, 10, correlation) | {"streamId": nothing, "syncType": kind, "eventId": event}
        export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", row)
    trace = imported(export.done())
    assert trace.rows("sync", "kind") == ["device", "unknown", "event", "stream", "stream_event"]
    # Records of synchronisations say device 0; their context is on device 3.
    assert set(trace.rows("sync", "device_id", "stream_id")) == {(3, None)}


def test_devices_are_found_through_the_process_that_numbered_them(export: NsysExport) -> None:
    gpu = {
        "smCount": 82,
        "totalMemory": 24 << 30,
        "threadsPerWarp": 32,
        "l2CacheSize": 6 << 20,
        "clockRate": 1695000000,
    }
    for number in (0, 1):
        export.add(
            "TARGET_INFO_GPU", {"id": number, "name": f"GPU {number}", "computeMajor": 8, "computeMinor": 6, **gpu}
        )
    export.add("TARGET_INFO_CUDA_DEVICE", {"gpuId": 1, "cudaId": 0, "pid": 10})
    export.add("TARGET_INFO_SYSTEM_ENV", {"name": "CudaDriverVersion", "value": "12040"})
    export.add("TARGET_INFO_CUDA_STREAM", {"streamId": 7, "processId": 10, "contextId": 1, "priority": 0xFFFFFFFB})
    export.kernel("axpy", 1, 2)
    trace = imported(export.done())
    (device,) = trace.rows("device")
    assert device == {
        **{"pid": 10, "device_id": 0, "vendor": "NVIDIA", "name": "GPU 1", "kind": "gpu", "platform": "CUDA 12.4"},
        **{"memory_bytes": 24 << 30, "multiprocessors": 82, "warp_size": 32, "cache_bytes": 6 << 20},
        **{"clock_khz": 1695000, "architecture": "8.6", "timestamps": True},
    }
    assert trace.rows("stream", "stream_id", "priority", "device_id") == [(7, -5, 0)]


def test_mpi_ranks_reach_every_row_of_their_process(export: NsysExport) -> None:
    for pid, rank in ((10, 3), (20, 4)):
        export.add("MPI_RANKS", {"globalTid": global_tid(pid, pid + 1), "rank": rank})
        export.kernel("axpy", 1, 2, pid=pid)
    trace = imported(export.done())
    assert sorted(trace.rows("kernel", "pid", "rank")) == [(10, 3), (20, 4)]
    assert sorted(trace.rows("process", "pid", "rank")) == [(10, 3), (20, 4)]


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        ({"PMI_RANK": 2, "PMI_LOCAL_RANK": 0, "PMI_SIZE": 8}, 2, 8),
        ({"SLURM_PROCID": 0, "SLURM_NTASKS": 1}, None, None),
        ({"RANK": 5, "WORLD_SIZE": 6}, 5, 6),
    ],
)
def test_the_launchers_environment_gives_the_rank(
    export: NsysExport, variables: dict[str, int], rank: int | None, size: int | None
) -> None:
    for name, value in variables.items():
        export.about("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"', table="META_DATA_CAPTURE")
    export.about("PROCESS_0:COMMAND", "./train", table="META_DATA_CAPTURE")
    export.about("PROCESS_0:ARGUMENT_0", "--fast", table="META_DATA_CAPTURE")
    export.kernel("axpy", 1, 2)
    trace = imported(export.done())
    assert trace.rows("process", "rank", "world_size", "command") == [(rank, size, "./train --fast")]
    assert trace.rows("kernel", "rank") == [rank]


def test_files_of_several_ranks_share_one_clock(tmp_path: Path) -> None:
    paths = []
    for rank, epoch in ((0, 1_700_000_000_000_000_000), (1, 1_700_000_000_000_000_500)):
        export = NsysExport(tmp_path / f"rank{rank}.sqlite")
        export.add("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": epoch})
        export.call("cudaLaunchKernel", 90, 95, pid=10 + rank, correlation=1)
        export.nvtx("aten::mm, op_id = 1", 80, 96)
        export.kernel("axpy", 100, 200, pid=10 + rank, correlation=1)
        paths.append(export.done())
    trace = imported(*paths)
    assert trace.rows("kernel", "pid", "start_ns", "end_ns") == [(10, 100, 200), (11, 600, 700)]
    assert trace.rows("api", "start_ns", "end_ns") == [(90, 95), (590, 595)]
    assert trace.rows("clock", "start_ns", "source", "source_ns") == [(0, "realtime", 1_700_000_000_000_000_000)]
    assert len(set(trace.rows("op", "op_id"))) == 2


@pytest.mark.parametrize(
    ("table", "version"), [("META_DATA_EXPORT", "3.25.0"), ("EXPORT_META_DATA", "2.9.1"), (None, "")]
)
def test_every_era_of_versions_is_recognised(tmp_path: Path, table: str | None, version: str) -> None:
    export = NsysExport(tmp_path / "old.sqlite")
    if table:
        export.about("EXPORT_SCHEMA_VERSION", version, table=table)
    export.kernel("axpy", 1, 2)
    path = export.done()
    assert detect(path).value == "nsys"
    assert imported(path).summary.version == version


def test_old_exports_tell_runtime_from_driver_by_name(tmp_path: Path) -> None:
    export = NsysExport(tmp_path / "old.sqlite")
    for name in ("cudaMalloc_v3020", "cuMemAlloc_v2", "vkDraw"):
        row = {"start": 0, "end": 1, "globalTid": global_tid(10, 11), "nameId": export.string(name)}
        export.add("CUPTI_ACTIVITY_KIND_RUNTIME", row)
    assert imported(export.done()).rows("api", "name", "api", "correlation_id") == [
        ("cudaMalloc", "cuda_runtime", None),
        ("cuMemAlloc_v2", "cuda_driver", None),
        ("vkDraw", "unknown", None),
    ]


def test_a_virtual_table_is_not_read(export: NsysExport) -> None:
    export.kernel("axpy", 1, 2)
    path = export.done()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, end, eventType, text)")
        database.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'step')")
        database.commit()
    trace = imported(path)
    assert trace.rows("kernel", "end_ns") == [2]
    assert trace.rows("range") == []


def test_what_has_no_place_is_listed(export: NsysExport) -> None:
    export.kernel("axpy", 1, 2, cacheConfig=1, launchType=None)
    export.add("OSRT_API", {"start": 1, "end": 2}, {"start": 3, "end": 4})
    unplaced = imported(export.done()).summary.unplaced
    assert unplaced == {"OSRT_API": 2, f"{KERNEL}.cacheConfig": 1}


def test_what_nsight_itself_says_is_missing_is_a_loss(export: NsysExport) -> None:
    export.add("DIAGNOSTIC_EVENT", {"severity": 2, "text": "Not all CUDA events might have been collected."})
    export.kernel("axpy", 1, 2)
    assert imported(export.done()).rows("loss", "table", "records", "cause") == [
        ("kernel", None, "nsys: Not all CUDA events might have been collected")
    ]


def test_a_just_in_time_compilation_is_a_build(export: NsysExport) -> None:
    row = {"start": 5, "end": 9, "globalTid": global_tid(10, 11), "deviceId": 0, "overheadType": 0}
    export.add("CUPTI_ACTIVITY_KIND_JIT", row)
    assert imported(export.done()).rows("build", "pid", "start_ns", "end_ns", "thread_id", "device_id") == [
        (10, 5, 9, 11, 0)
    ]


@pytest.mark.parametrize("tables", [(), (KERNEL,)])
def test_nothing_to_import_is_an_error_with_status_2(tmp_path: Path, tables: tuple[str, ...]) -> None:
    export = NsysExport(tmp_path / "cpu.sqlite")
    export.string("main")
    export.add("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": 1})
    path = export.done()
    database = sqlite3.connect(path)
    for table in tables:
        database.execute(f"CREATE TABLE {table} (start, end)")
    database.close()
    with pytest.raises(PastaError, match=r"nothing to import from cpu\.sqlite") as error:
        import_files([path], tmp_path / "out.pasta")
    assert error.value.exit_code == 2
    assert beside(path) == ["cpu.sqlite"]


def test_a_packed_export_is_read_and_a_cut_one_refused(export: NsysExport) -> None:
    export.kernel("axpy", 1, 2)
    path = export.done()
    packed = path.with_suffix(".sqlite.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert imported(packed).rows("kernel", "end_ns") == [2]
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(PastaError, match="incomplete"):
        import_files([packed], path.parent / "cut.pasta")


def test_the_users_file_is_left_alone(export: NsysExport) -> None:
    export.kernel("axpy", 1, 2, correlation=1)
    export.nvtx("aten::mm, op_id = 1", 0, 5)
    path = export.done()
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
    before = path.read_bytes()
    imported(path)
    assert path.read_bytes() == before
    assert beside(path) == ["imported.pasta", "report.sqlite"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_is_being_written_is_refused(export: NsysExport, mode: str) -> None:
    export.kernel("axpy", 1, 2)
    path = export.done()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute(f"PRAGMA journal_mode = {mode}")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute(f"INSERT INTO {KERNEL} (start, end) VALUES (3, 4)")
    if mode == "wal":
        writer.execute("COMMIT")
    try:
        with pytest.raises(PastaError, match="being written"):
            import_files([path], path.parent / "out.pasta")
    finally:
        writer.close()


def test_a_locked_database_is_refused(export: NsysExport) -> None:
    export.kernel("axpy", 1, 2)
    path = export.done()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(PastaError, match="written by another program"):
            import_files([path], path.parent / "out.pasta")
    finally:
        writer.close()


#: Values that a column of a real export could hold, and some that it could not.
_WHOLE = st.integers(-(2**63), 2**63 - 1)
_ODD = st.one_of(st.none(), st.text(max_size=5), st.floats(), st.binary(max_size=5))


@MANY_FILES
@given(
    launches=st.lists(
        st.tuples(
            st.sampled_from([10, 20]),
            st.integers(0, 10**15),
            st.integers(0, 10**9),
            st.integers(1, 2**31 - 1),
            st.text("abcdefgh", min_size=1, max_size=8),
        ),
        min_size=1,
        max_size=30,
        unique_by=lambda launch: (launch[0], launch[3]),
    )
)
def test_calls_and_kernels_round_trip(tmp_path: Path, launches: list[tuple[int, int, int, int, str]]) -> None:
    path = tmp_path / "generated.sqlite"
    path.unlink(missing_ok=True)
    export = NsysExport(path)
    for pid, start, duration, correlation, name in launches:
        export.call("cudaLaunchKernel", start, start + 1, pid=pid, tid=pid + 1, correlation=correlation)
        export.kernel(name, start + 2, start + 2 + duration, pid=pid, correlation=correlation)
    trace = imported(export.done())
    columns = ("pid", "thread_id", "start_ns", "end_ns", "correlation_id", "name")
    want = sorted((p, p + 1, s + 2, s + 2 + d, c, f"void {n}(int)") for p, s, d, c, n in launches)
    assert sorted(trace.rows("kernel", *columns)) == want
    kernels = trace.frame("kernel").sort("pid", "launch_id")
    for pid in {launch[0] for launch in launches}:
        own = kernels.filter(pl.col("pid") == pid)
        assert own["launch_id"].to_list() == list(range(1, own.height + 1))
        assert own["correlation_id"].is_sorted()


@MANY_FILES
@given(data=st.data())
def test_no_column_has_to_be_there_or_to_hold_what_it_should(tmp_path: Path, data: st.DataObject) -> None:
    full = NsysExport(":memory:")  # type: ignore[arg-type]
    full.call("cudaLaunchKernel", 1, 2, correlation=1)
    full.kernel("axpy", 3, 4, correlation=1)
    full.copy(11, 4, 3, 4)
    full.nvtx("aten::mm, op_id = 1", 0, 9)
    drawn: list[tuple[str, dict[str, Any]]] = []
    for table, columns in full.tables.items():
        kept = [name for name in columns if name in ("start", "id", "value", "eventType") or data.draw(st.booleans())]
        rows = data.draw(st.lists(st.tuples(*(st.one_of(_WHOLE, _ODD) for _ in kept)), min_size=1, max_size=3))
        for number, values in enumerate(rows):
            row: dict[str, Any] = dict(zip(kept, values, strict=True))
            drawn.append((table, row | ({"id": number} if "id" in row else {})))
    path = tmp_path / "odd.sqlite"
    path.unlink(missing_ok=True)
    odd = NsysExport(path)
    for table, row in drawn:
        odd.add(table, row)
    with contextlib.suppress(PastaError):
        imported(odd.done())


def test_a_table_whose_name_is_damaged_is_none(tmp_path: Path) -> None:
    export = NsysExport(tmp_path / "name.sqlite")
    export.kernel("axpy", 3, 4, correlation=1)
    export.nvtx("range", 0, 9)
    path = export.done()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET name = CAST(name AS BLOB) WHERE name = 'NVTX_EVENTS'")
    trace = imported(path)
    assert len(trace.rows("kernel", "name")) == 1
    assert not trace.rows("range", "name")


@MANY_FILES
@given(flips=FLIPS)
def test_damaged_bytes_never_do_more_than_fail_with_a_message(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    whole = tmp_path / "whole.sqlite"
    if not whole.exists():
        export = NsysExport(whole)
        for number in range(50):
            export.call("cudaLaunchKernel", number, number + 1, correlation=number)
            export.kernel(f"kernel{number}", number, number + 1, correlation=number)
            export.nvtx(f"aten::op{number}, seq = {number}", number, number + 1)
        export.done()
    import_damaged(whole, flips, first=100)


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_a_real_two_gpu_training_run_joins_kernels_with_operators(tmp_path: Path) -> None:
    folder = real_traces.folder()
    assert folder is not None
    trace = imported(folder / "nsys" / "nsysai_mfu_2gpu_after.sqlite.gz", into=tmp_path)
    kernels = trace.frame("kernel")
    # SELECT globalPid >> 24 & 0xffffff, deviceId, count(*), sum(end - start) ... GROUP BY 1, 2, with sqlite3.
    busy = kernels.group_by("pid", "device_id").agg(pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    assert sorted(busy.rows()) == [(148, 0, 1793, 237473368), (149, 1, 1794, 251362038)]
    # Kernels that no row of CUPTI_ACTIVITY_KIND_RUNTIME has launched: 10, with a join in sqlite3.
    assert kernels["thread_id"].null_count() == 10
    assert kernels.filter(pl.col("op_id").is_not_null()).height == 3577
    ops = trace.frame("op")
    assert (
        ops.join(ops, left_on=["pid", "parent_id"], right_on=["pid", "op_id"])
        .filter((pl.col("start_ns") < pl.col("start_ns_right")) | (pl.col("thread_id") != pl.col("thread_id_right")))
        .is_empty()
    )
