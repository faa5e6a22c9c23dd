"""rocprofv3's CSV files, in the forms that its releases gave them."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
import real_traces
from hypothesis import given
from hypothesis import strategies as st
from import_helper import FLIPS, MANY_FILES, import_damaged, imported

from pasta.errors import PastaError
from pasta.importers import detect, import_files

#: Headers of kernel files: ROCm 6.2, ROCm 7, and `rocpd convert`.
ROCM_6 = (
    "Kind,Agent_Id,Queue_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp,"
    "Private_Segment_Size,Group_Segment_Size,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,"
    "Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)
ROCM_7 = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,"
    "End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Workgroup_Size_X,"
    "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)
ROCPD = f"Guid,{ROCM_7.replace('LDS', 'Lds').replace('VGPR', 'Vgpr').replace('SGPR', 'Sgpr')}"
CALLS = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp"


def write(path: Path, header: str, *rows: tuple[object, ...]) -> Path:
    with open(path, "w", newline="") as file:
        file.write(",".join(f'"{name}"' for name in header.split(",")) + "\n")
        csv.writer(file, lineterminator="\n").writerows(rows)
    return path


@pytest.mark.parametrize(
    ("header", "row", "stream", "registers"),
    [
        (ROCM_6, ("KERNEL_DISPATCH", 4, 9, 77, 3, 1, "f(int, int)", 5, 10, 30, 16, 512, 64, 1, 1, 100, 2, 1), 9, None),
        (
            ROCM_7,
            (
                "KERNEL_DISPATCH",
                "Agent 4",
                9,
                6,
                77,
                3,
                1,
                "f(int, int)",
                5,
                10,
                30,
                512,
                16,
                8,
                0,
                0,
                64,
                1,
                1,
                100,
                2,
                1,
            ),
            *(6, 8),
        ),
        (
            ROCPD,
            (
                "g",
                "KERNEL_DISPATCH",
                "GPU 4",
                9,
                6,
                77,
                3,
                1,
                "f(int, int)",
                5,
                10,
                30,
                512,
                16,
                8,
                0,
                0,
                64,
                1,
                1,
                100,
                2,
                1,
            ),
            *(6, 8),
        ),
    ],
    ids=["ROCm 6", "ROCm 7", "rocpd convert"],
)
def test_every_header_gives_the_same_kernel(
    tmp_path: Path, header: str, row: tuple[object, ...], stream: int, registers: int | None
) -> None:
    path = write(tmp_path / "out_kernel_trace.csv", header, row)
    assert detect(path).value == "rocprofv3-csv"
    (kernel,) = imported(path).rows("kernel")
    assert kernel == {
        **{"pid": 0, "start_ns": 10, "end_ns": 30, "thread_id": 77, "device_id": 4, "stream_id": stream},
        **{"correlation_id": 5, "launch_id": 3, "name": "f(int, int)", "grid_x": 2, "grid_y": 2, "grid_z": 1},
        **{"block_x": 64, "block_y": 1, "block_z": 1, "global_x": 100, "global_y": 2, "global_z": 1},
        **{"static_shared_bytes": 512, "local_bytes": 16},
        **({} if registers is None else {"registers": registers}),
    }


KERNEL = ("KERNEL_DISPATCH", "Agent 4", 9, 6, 77, 3, 1, "f()", 5, 10, 30, 0, 0, 8, 0, 0, 64, 1, 1, 64, 1, 1)


def test_a_set_of_files_is_one_run_and_its_calls_name_the_process(tmp_path: Path) -> None:
    kernels = write(tmp_path / "out_kernel_trace.csv", ROCM_7, KERNEL)
    calls = write(
        tmp_path / "out_hip_api_trace.csv", CALLS, ("HIP_RUNTIME_API_EXT", "hipLaunchKernel", 908, 77, 5, 1, 4)
    )
    trace = imported(kernels, calls)
    assert trace.rows("kernel", "pid") == [908]
    assert trace.rows("api", "pid", "api", "name", "thread_id") == [(908, "hip", "hipLaunchKernel", 77)]
    assert trace.rows("process", "pid") == [908]


def test_runs_of_several_processes_are_told_apart_by_guid_thread_and_name(tmp_path: Path) -> None:
    guid = f"Guid,{CALLS}"
    calls = write(
        tmp_path / "all_hip_api_trace.csv",
        guid,
        ("a", "HIP_RUNTIME_API", "hipMalloc", 1, 11, 1, 1, 2),
        ("b", "HIP_RUNTIME_API", "hipMalloc", 2, 22, 1, 1, 2),
    )
    by_guid = write(tmp_path / "all_kernel_trace.csv", ROCPD, ("b", *KERNEL), ("a", *KERNEL))
    by_thread = write(
        tmp_path / "all_memory_copy_trace.csv", "Direction,Source_Agent_Id,Thread_Id,Start_Timestamp", ("X", "", 22, 5)
    )
    by_name = write(tmp_path / "4711_kernel_trace.csv", ROCM_7, KERNEL)
    trace = imported(by_guid, by_thread, by_name, calls)
    assert trace.rows("kernel", "pid") == [2, 1, 4711]
    assert trace.rows("memcpy", "pid", "kind") == [(2, "unknown")]


def test_a_copy_has_no_size(tmp_path: Path) -> None:
    header = (
        "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp"
    )
    rows = [
        ("MEMORY_COPY", f"MEMORY_COPY_{a}_TO_{b}", 0, f"Agent {i}", f"Agent {j}", 1, 5, 9)
        for a, b, i, j in (("HOST", "DEVICE", 0, 4), ("DEVICE", "HOST", 4, 0), ("DEVICE", "DEVICE", 4, 5))
    ]
    path = write(tmp_path / "out_memory_copy_trace.csv", header, *rows)
    assert imported(path).rows("memcpy", "kind", "bytes", "src_device_id", "dst_device_id") == [
        ("h2d", None, None, 4),
        ("d2h", None, 4, None),
        ("d2d", None, 4, 5),
    ]


def test_agents_of_a_set_tell_the_host_from_devices(tmp_path: Path) -> None:
    agents = write(
        tmp_path / "out_agent_info.csv",
        "Node_Id,Logical_Node_Id,Agent_Type,Wave_Front_Size,Cu_Count,Name,Vendor_Name,Product_Name",
        (0, 0, "CPU", 0, 0, "EPYC", "CPU", "EPYC"),
        (4, 4, "GPU", 64, 304, "gfx942", "AMD", "MI300X"),
    )
    allocations = write(
        tmp_path / "out_memory_allocation_trace.csv",
        "Kind,Operation,Agent_Id,Allocation_Size,Address,Correlation_Id,Start_Timestamp,End_Timestamp",
        ("MEMORY_ALLOCATION", "MEMORY_ALLOCATION_ALLOCATE", "Agent 0", 1024, "0x7fb2d0005000", 1, 1, 2),
        ("MEMORY_ALLOCATION", "MEMORY_ALLOCATION_ALLOCATE", "Agent 4", 256, "0x1000", 2, 3, 4),
        ("MEMORY_ALLOCATION", "MEMORY_ALLOCATION_FREE", "Agent 0", 0, "0x7fb2d0005000", 3, 5, 6),
    )
    trace = imported(agents, allocations)
    assert trace.rows("alloc", "action", "address", "bytes", "kind", "device_id") == [
        ("alloc", 0x7FB2D0005000, 1024, "pinned", None),
        ("alloc", 0x1000, 256, "device", 4),
        ("free", 0x7FB2D0005000, 1024, "pinned", None),
    ]
    assert trace.rows("device", "device_id", "name", "multiprocessors", "warp_size") == [(4, "MI300X", 304, 64)]


def test_markers_are_ranges_and_own_the_calls_in_them(tmp_path: Path) -> None:
    markers = write(
        tmp_path / "out_marker_api_trace.csv",
        CALLS,
        ("MARKER_CORE_API", "before", 1, 11, 1, 5, 5),
        ("MARKER_CORE_API", "aten::mm, op_id = 4", 1, 11, 2, 10, 40),
        ("MARKER_CORE_API", "step", 1, 11, 3, 6, 50),
        ("MARKER_CORE_API", "whole", 1, 0, 4, 1, 90),
        ("MARKER_CONTROL_API", "roctxProfilerPause", 1, 11, 5, 60, 61),
    )
    calls = write(tmp_path / "out_hip_api_trace.csv", CALLS, ("HIP_RUNTIME_API", "hipLaunchKernel", 1, 11, 5, 20, 21))
    kernels = write(tmp_path / "out_kernel_trace.csv", ROCM_7, KERNEL)
    trace = imported(kernels, calls, markers)
    assert sorted(trace.rows("range", "name", "kind", "thread_id")) == [
        ("before", "mark", 11),
        ("step", "push_pop", 11),
        ("whole", "start_end", None),
    ]
    (op,) = trace.rows("op", "op_id")
    assert trace.rows("api", "op_id") == [op]
    assert trace.rows("kernel", "op_id") == [op]
    assert trace.summary.unplaced == {"MARKER_CONTROL_API event": 1}


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("Correlation_Id,Dispatch_Id,Counter_Name,Counter_Value,Process_Id,Thread_Id", "hardware counter"),
        ("Kind,Operation,Agent_Id,Queue_Id,Thread_Id,Alloc_Flags,Start_Timestamp,End_Timestamp", "scratch memory"),
        ("Sample_Timestamp,Exec_Mask,Dispatch_Id,Instruction", "program counter"),
        ("Name,Calls,TotalDurationNs,AverageNs", "statistics"),
    ],
)
def test_files_that_no_table_has_a_place_for_are_named(tmp_path: Path, header: str, what: str) -> None:
    path = write(tmp_path / "out.csv", header, tuple(range(header.count(",") + 1)))
    assert detect(path).value == "rocprofv3-csv"
    with pytest.raises(PastaError, match=what) as error:
        import_files([path], tmp_path / "out.pasta")
    assert error.value.exit_code == 2


def test_rows_that_are_cut_or_have_no_start_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "out_kernel_trace.csv", ROCM_7, KERNEL, (*KERNEL[:9], "soon", *KERNEL[10:]))
    path.write_bytes(path.read_bytes() + b'"KERNEL_DISPATCH","Agent 4",9')
    trace = imported(path)
    assert len(trace.rows("kernel")) == 1
    assert trace.summary.skipped == {"row with a wrong number of fields": 1, "row without a start": 1}


def test_of_a_packed_file_that_is_cut_the_whole_rows_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "out_hip_api_trace.csv"
    calls = [("HIP_RUNTIME_API", f"hipCall{n**7}", 1, 1, n, n * 10, n * 10 + 5) for n in range(2000)]
    content = gzip.compress(write(path, CALLS, *calls).read_bytes(), mtime=0)
    path.write_bytes(content[: len(content) // 2])
    trace = imported(path)
    names = trace.rows("api", "name")
    assert 200 < len(names) < 1800
    assert names == [call[1] for call in calls[: len(names)]]
    (loss,) = trace.rows("loss")
    assert loss["table"] == "api"
    assert "its gzip data ends early" in loss["cause"]


@MANY_FILES
@given(
    kernels=st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.integers(0, 2**40),
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20),
        ),
        min_size=1,
        max_size=10,
    ),
    upper=st.booleans(),
)
def test_kernels_round_trip(tmp_path: Path, kernels: list[tuple[int, int, str]], upper: bool) -> None:
    header = ROCM_7.upper() if upper else ROCM_7.lower()
    rows = [(*KERNEL[:7], name, 5, start, start + duration, *KERNEL[11:]) for start, duration, name in kernels]
    path = write(tmp_path / "generated_kernel_trace.csv", header, *rows)
    want = [(start, start + duration, name or None) for start, duration, name in kernels]
    assert imported(path).rows("kernel", "start_ns", "end_ns", "name") == want


@MANY_FILES
@given(flips=FLIPS)
def test_damaged_bytes_never_do_more_than_fail_with_a_message(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    import_damaged(write(tmp_path / "out_kernel_trace.csv", ROCM_7, KERNEL, KERNEL, KERNEL), flips)


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_a_real_set_joins_kernels_with_the_calls_of_their_process(tmp_path: Path) -> None:
    folder = real_traces.folder()
    assert folder is not None
    files = [folder / "rocprofv3" / f"ruv_decode_{name}_trace.csv" for name in ("kernel", "hip_api")]
    counters = folder / "rocprofv3" / "ruv_decode_fetch_counter_collection.csv"
    trace = imported(*files, counters, into=tmp_path)
    assert len(trace.rows("kernel")) == 144
    assert set(trace.rows("kernel", "pid")) == {2684120}
    # Counted with csv.DictReader: the calls of 27 of the 144 kernels are in this part of the trace.
    kernels, calls = trace.frame("kernel"), trace.frame("api")
    assert kernels.join(calls, on=["pid", "correlation_id"]).height == 27
    # 34 data lines of the counter file, which no table has a place for.
    assert trace.summary.unplaced["value of a hardware counter"] == 34
