"""rocprofv3's JSON, on documents made here in the form that rocprofiler-sdk 1.0 writes."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path

import polars as pl
import pytest
import real_traces
from hypothesis import given
from hypothesis import strategies as st
from import_helper import FLIPS, MANY_FILES, import_damaged, imported
from rocprof_maker import GPU, HOST, KINDS, OTHER_GPU, RocprofDocument

from pasta.errors import PastaError
from pasta.importers import detect, import_files


@pytest.fixture
def document() -> RocprofDocument:
    return RocprofDocument()


def test_a_grid_of_work_items_becomes_blocks_and_the_last_may_be_short(
    document: RocprofDocument, tmp_path: Path
) -> None:
    document.dispatch(100, 250, grid=(1000, 4, 1), block=(256, 4, 1))
    path = document.write(tmp_path / "results.json")
    assert detect(path).value == "rocprofv3-json"
    (kernel,) = imported(path).rows("kernel")
    assert kernel == {
        **{"pid": 908, "start_ns": 100, "end_ns": 250, "thread_id": 77, "device_id": 4, "stream_id": 2},
        **{"correlation_id": 1, "launch_id": 12, "name": "axpy(int)", "mangled": "_Z4axpyi"},
        **{"grid_x": 4, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 4, "block_z": 1},
        **{"global_x": 1000, "global_y": 4, "global_z": 1, "registers": 24, "local_bytes": 16},
        # The symbol's own segment is 1024 of the 3072 bytes that the dispatch was given.
        **{"static_shared_bytes": 1024, "dynamic_shared_bytes": 2048},
    }


def test_kinds_are_looked_up_in_the_document(tmp_path: Path) -> None:
    names = list(reversed(KINDS))
    document = RocprofDocument(kinds={name: KINDS[name] for name in names})
    document.dispatch(1, 2, grid=(1, 1, 1), block=(1, 1, 1))
    document.add("HIP_RUNTIME_API_EXT", 2, 0, 1)
    document.add("HSA_CORE_API", 1, 0, 1)
    trace = imported(document.write(tmp_path / "results.json"))
    assert trace.rows("kernel", "name") == ["axpy(int)"]
    assert sorted(trace.rows("api", "api", "name")) == [("hip", "hipLaunchKernel"), ("hsa", "hsa_queue_create")]


def test_a_device_is_its_node_and_has_what_its_agent_says(document: RocprofDocument, tmp_path: Path) -> None:
    document.dispatch(1, 2, grid=(1, 1, 1), block=(1, 1, 1))
    trace = imported(document.write(tmp_path / "results.json"))
    assert trace.rows("device") == [
        {
            **{"pid": 908, "device_id": 4, "vendor": "AMD", "name": "AMD Instinct MI300X", "kind": "gpu"},
            **{"pci": "0000:75:00.0", "memory_bytes": 192 << 30, "multiprocessors": 304, "warp_size": 64},
            **{"line_bytes": 64, "cache_bytes": 4 << 20, "shared_bytes": 65536, "clock_khz": 2100000},
            **{"architecture": "gfx942", "timestamps": True},
        }
    ]
    assert trace.rows("process") == [
        {"pid": 908, "start_ns": 5, "end_ns": 9000, "host": "mi300", "command": "./app -n"},
    ]


def test_a_copy_without_a_size_has_none_and_the_host_is_no_device(document: RocprofDocument, tmp_path: Path) -> None:
    ends = {"src_agent_id": {"handle": HOST}, "dst_agent_id": {"handle": GPU}}
    document.add("MEMORY_COPY", 1, 10, 20, bytes=4096, **ends)
    document.add("MEMORY_COPY", 2, 30, 40, src_agent_id={"handle": OTHER_GPU}, dst_agent_id={"handle": HOST})
    trace = imported(document.write(tmp_path / "results.json"))
    assert trace.rows("memcpy", "kind", "bytes", "src_device_id", "dst_device_id", "device_id") == [
        ("h2d", 4096, None, 4, 4),
        ("d2h", None, 5, None, 5),
    ]


def test_a_free_states_no_size_and_takes_that_of_its_allocation(document: RocprofDocument, tmp_path: Path) -> None:
    def memory(operation: int, start: int, address: int, size: int, handle: int = GPU) -> None:
        more = {"address": {"value": address}, "allocation_size": size, "agent_id": {"handle": handle}}
        document.add("MEMORY_ALLOCATION", operation, start, start + 1, **more)

    memory(1, 1, 0x1000, 512)
    memory(1, 2, 0x2000, 64, HOST)
    memory(3, 3, 0x1000, 0)
    memory(1, 4, 0x1000, 128)
    memory(2, 5, 0x3000, 4096)
    memory(3, 6, 0, 0)
    memory(3, 7, 0x9000, 0)
    trace = imported(document.write(tmp_path / "results.json"))
    assert trace.rows("alloc", "action", "object_id", "address", "bytes", "kind", "device_id") == [
        ("alloc", 1, 0x1000, 512, "device", 4),
        ("alloc", 2, 0x2000, 64, "pinned", None),
        ("free", 1, 0x1000, 512, "device", 4),
        ("alloc", 3, 0x1000, 128, "device", 4),
        ("alloc", 4, 0x3000, 4096, "virtual", 4),
        ("free", None, 0x9000, None, "device", 4),
    ]
    assert trace.summary.skipped == {"free of a null pointer": 1}
    assert trace.summary.unmatched == {"free of memory whose allocation is not in the source": 1}


def test_migrations_and_faults_of_the_driver_are_unified_memory(document: RocprofDocument, tmp_path: Path) -> None:
    span = {"start_address": {"value": 0x10000}, "end_address": {"value": 0x12000}}
    ends = {"src_agent": {"handle": GPU}, "dst_agent": {"handle": HOST}}
    document.add("KFD_PAGE_MIGRATE", 0, 1, 5, **span, **ends)
    document.add("KFD_PAGE_MIGRATE", 1, 2, 6, **span)
    document.add("KFD_PAGE_MIGRATE", 0, 3, 7, src_agent={"handle": GPU}, dst_agent={"handle": OTHER_GPU}, **span)
    document.add("KFD_PAGE_FAULT", 1, 8, 9, address={"value": 0x10000}, agent_id={"handle": GPU})
    trace = imported(document.write(tmp_path / "results.json"))
    assert trace.rows("uvm", "kind", "cause", "address", "bytes", "src_device_id", "dst_device_id") == [
        ("migrate_d2h", "prefetch", 0x10000, 8192, 4, None),
        ("migrate_h2d", "fault", 0x10000, 8192, None, None),
        ("migrate_d2d", "prefetch", 0x10000, 8192, 4, 5),
        ("fault_gpu", "write", 0x10000, None, None, 4),
    ]


def test_markers_get_their_text_from_the_strings_and_nest(document: RocprofDocument, tmp_path: Path) -> None:
    texts = {1: "step", 2: "inner", 3: "here", 4: "whole", 5: "aten::mm, seq = 3, op_id = 9"}
    document.entry["strings"]["marker_api"] = [{"key": key, "value": text} for key, text in texts.items()]
    document.add("MARKER_CORE_RANGE_API", 1, 20, 30, correlation=2)  # an inner range ends, and is written, first
    document.add("MARKER_CORE_RANGE_API", 1, 10, 50, correlation=1)
    document.add("MARKER_CORE_RANGE_API", 0, 25, 25, correlation=3)
    document.add("MARKER_CORE_RANGE_API", 2, 5, 60, correlation=4)
    document.add("MARKER_CORE_RANGE_API", 1, 21, 29, correlation=5)
    document.add("MARKER_CORE_RANGE_API", 3, 6, 7, correlation=6)
    trace = imported(document.write(tmp_path / "results.json"))
    ranges = {row["name"]: row for row in trace.rows("range")}
    assert ranges["inner"]["parent_id"] == ranges["step"]["range_id"]
    assert {name: row["kind"] for name, row in ranges.items()} == {
        **{"step": "push_pop", "inner": "push_pop", "here": "mark", "whole": "start_end"},
    }
    assert {row["source"] for row in ranges.values()} == {"roctx"}
    assert trace.rows("op", "name", "phase", "sequence") == [("aten::mm", "forward", 3)]
    assert trace.summary.unplaced == {"roctx call roctxGetThreadId": 1}


def test_what_has_no_place_is_counted(document: RocprofDocument, tmp_path: Path) -> None:
    document.dispatch(1, 2, grid=(1, 1, 1), block=(1, 1, 1))
    document.add("SCRATCH_MEMORY", 1, 1, 2)
    document.entry["buffer_records"]["odd"] = [{"kind": 900, "operation": 1, "start_timestamp": 1}]
    document.entry["callback_records"]["counter_collection"] = [{"records": []}, {"records": []}]
    summary = imported(document.write(tmp_path / "results.json")).summary
    assert summary.unplaced == {"SCRATCH_MEMORY record": 1, "counter_collection record": 2}
    assert summary.skipped == {"record of a kind that the document does not name": 1}


def test_a_kernel_without_a_symbol_is_kept_without_a_name(document: RocprofDocument, tmp_path: Path) -> None:
    document.entry["kernel_symbols"] = []
    document.dispatch(1, 2, grid=(1, 1, 1), block=(1, 1, 1))
    trace = imported(document.write(tmp_path / "results.json"))
    # Without the symbol, which part of the group segment is static is not known.
    assert trace.rows("kernel", "name", "static_shared_bytes", "dynamic_shared_bytes") == [(None, 3072, None)]
    assert trace.summary.unmatched == {"kernel whose name is not in the file": 1}


def test_records_may_come_before_what_explains_them(document: RocprofDocument, tmp_path: Path) -> None:
    document.dispatch(1, 2, grid=(8, 1, 1), block=(4, 1, 1))
    document.entry = dict(reversed(document.entry.items()))
    assert imported(document.write(tmp_path / "results.json")).rows("kernel", "pid", "name", "grid_x") == [
        (908, "axpy(int)", 2)
    ]


def test_each_process_of_a_document_has_its_own_ids(tmp_path: Path) -> None:
    first, second = RocprofDocument(pid=1), RocprofDocument(pid=2)
    second.entry["kernel_symbols"][0]["formatted_kernel_name"] = "other(int)"
    for document in (first, second):
        document.dispatch(1, 2, grid=(1, 1, 1), block=(1, 1, 1))
    assert imported(first.write(tmp_path / "results.json", second)).rows("kernel", "pid", "name") == [
        (1, "axpy(int)"),
        (2, "other(int)"),
    ]


def test_of_a_document_that_is_cut_the_whole_records_are_kept(document: RocprofDocument, tmp_path: Path) -> None:
    for number in range(100):
        document.dispatch(number, number + 1, grid=(1, 1, 1), block=(1, 1, 1))
    text = json.dumps({"rocprofiler-sdk-tool": [document.entry]})
    path = tmp_path / "cut.json"
    path.write_text(text[: text.index('"start_timestamp": 60,')])
    trace = imported(path)
    assert trace.rows("kernel", "start_ns") == list(range(60))
    assert trace.rows("loss", "table", "records") == [("kernel", None)]
    assert any("cut.json is cut" in note for note in trace.summary.notes)


def test_a_document_without_records_is_nothing_to_import(document: RocprofDocument, tmp_path: Path) -> None:
    path = document.write(tmp_path / "empty.json")
    with pytest.raises(PastaError, match="nothing to import") as error:
        import_files([path], tmp_path / "out.pasta")
    assert error.value.exit_code == 2


_SIZE = st.integers(1, 2**20)


@MANY_FILES
@given(
    dispatches=st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 10**9), st.tuples(_SIZE, _SIZE, _SIZE), st.integers(1, 1024)),
        min_size=1,
        max_size=20,
    ),
    packed=st.booleans(),
)
def test_dispatches_round_trip(
    tmp_path: Path, dispatches: list[tuple[int, int, tuple[int, int, int], int]], packed: bool
) -> None:
    document = RocprofDocument()
    for start, duration, grid, block in dispatches:
        document.dispatch(start, start + duration, grid=grid, block=(block, 1, 1))
    path = document.write(tmp_path / "generated.json")
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    # The number of blocks is that of whole blocks, and one more when work-items are left over.
    want = [(s, s + d, *grid, grid[0] // block + (grid[0] % block > 0)) for s, d, grid, block in dispatches]
    assert imported(path).rows("kernel", "start_ns", "end_ns", "global_x", "global_y", "global_z", "grid_x") == want


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@MANY_FILES
@given(data=st.data())
def test_any_value_may_stand_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    document = RocprofDocument()
    document.dispatch(1, 2, grid=(1, 1, 1), block=(1, 1, 1))
    document.add("MEMORY_COPY", 1, 10, 20, src_agent_id={"handle": HOST})
    part = data.draw(st.sampled_from([*document.entry, "record", "info"]))
    if part == "record":
        record = document.entry["buffer_records"]["memory_copy"][0]
        record[data.draw(st.sampled_from(list(record)))] = data.draw(_JSON)
    elif part == "info":
        info = document.entry["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]
        info[data.draw(st.sampled_from(list(info)))] = data.draw(_JSON)
    else:
        document.entry[part] = data.draw(_JSON)
    with contextlib.suppress(PastaError):
        imported(document.write(tmp_path / "odd.json"))


@MANY_FILES
@given(flips=FLIPS)
def test_damaged_bytes_never_do_more_than_fail_with_a_message(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    document = RocprofDocument()
    for number in range(5):
        document.dispatch(number, number + 1, grid=(1, 1, 1), block=(1, 1, 1))
    import_damaged(document.write(tmp_path / "results.json"), flips)


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_a_real_training_run_on_an_mi350x(tmp_path: Path) -> None:
    folder = real_traces.folder()
    assert folder is not None
    trace = imported(folder / "rocprofv3" / "tl_908_results.json.gz", into=tmp_path)
    assert trace.rows("device", "name", "architecture", "multiprocessors") == [("AMD Instinct MI350X", "gfx950", 256)]
    kernels = trace.frame("kernel")
    # Counted with json.load: all 43915 dispatches are on agent 37946, which is node 2, and divide evenly into blocks.
    assert kernels["device_id"].unique().to_list() == [2]
    assert kernels.filter(pl.col("grid_x") * pl.col("block_x") != pl.col("global_x")).is_empty()
    assert kernels.group_by("stream_id").len().sort("len", descending=True).row(0) == (567, 37300)
