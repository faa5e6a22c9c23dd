"""What Kineto's files of each vendor and year say differently; expected values are the meaning of the names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kineto_maker import PID, call, column, document, event, imported, kernel, op, rows

H100 = {"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80 << 30, "computeMajor": 9, "computeMinor": 0}
H100 |= {"warpSize": 32, "numSms": 132, "sharedMemPerMultiprocessor": 233472}


def mi300(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": "AMD Instinct MI300X", "totalGlobalMem": 192 << 30, "warpSize": 64} | more


def test_a_cuda_device_is_described_by_its_entry(tmp_path: Path) -> None:
    text = document([kernel("k", 0, 1000, 1, registers_per_thread=40, grid=[8, 2, 1], block=[256, 1, 1])])
    with imported(
        tmp_path, text.replace('"deviceProperties": []', f'"deviceProperties": {json.dumps([H100])}')
    ) as trace:
        (device,) = rows(trace, "device")
        assert (device["vendor"], device["name"], device["architecture"]) == ("NVIDIA", "NVIDIA H100", "9.0")
        assert (device["multiprocessors"], device["warp_size"], device["memory_bytes"]) == (132, 32, 80 << 30)
        (row,) = rows(trace, "kernel", "registers", "grid_x", "grid_y", "block_x", "stream_id", "context_id")
        assert row == {
            **{"registers": 40, "grid_x": 8, "grid_y": 2, "block_x": 256, "stream_id": 7, "context_id": 1},
        }
        assert rows(trace, "stream", "stream_id", "device_id", "context_id") == [
            {"stream_id": 7, "device_id": 0, "context_id": 1}
        ]


def test_rocm_agent_ids_do_not_index_the_device_list(tmp_path: Path) -> None:
    # Two sockets come first, so agent 9 is the last of eight GPUs; only what all share is said of it.
    listed = [mi300(number, numSms=304 if number else 300) for number in range(8)]
    text = document([kernel("k", 0, 1000, 1, device=9)], deviceProperties=listed, hip_driver_version=60443483)
    with imported(tmp_path, text) as trace:
        (device,) = rows(trace, "device", "device_id", "vendor", "name", "warp_size", "multiprocessors")
        assert device == {
            **{"device_id": 9, "vendor": "AMD", "name": "AMD Instinct MI300X", "warp_size": 64},
            "multiprocessors": None,
        }


def test_an_empty_device_name_is_unknown(tmp_path: Path) -> None:
    text = document([kernel("k", 0, 1, 1)], deviceProperties=[mi300(0, name="")], roctracer_version="4.1")
    with imported(tmp_path, text) as trace:
        assert rows(trace, "device", "name", "vendor") == [{"name": None, "vendor": "AMD"}]


def test_hip_calls_have_the_api_hip_whatever_their_category(tmp_path: Path) -> None:
    events = [
        call("hipLaunchKernel", 0, 10, 1),
        call("cudaLaunchKernel", 20, 30, 2),
        event("cuda_driver", "cuLaunchKernel", 40, 50, correlation=3),
        event("xpu_runtime", "zeCommandListAppendLaunchKernel", 60, 70, correlation=4),
        event("xpu_runtime", "urEnqueueKernelLaunch", 80, 90, correlation=5),
        event("mtia_runtime", "runFunction", 100, 110, correlation=6),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "api", "api") == ["hip", "cuda_runtime", "cuda_driver", "level_zero", "other", "other"]


def test_grids_of_module_launches_of_hip_are_work_items(tmp_path: Path) -> None:
    # Kineto fills them from globalWorkSizeX: libkineto/src/RocprofLogger.cpp.
    shape = {"grid": [17920, 3, 1], "block": [256, 2, 1]}
    events = [
        call("hipExtModuleLaunchKernel", 0, 10, 1),
        call("hipLaunchKernel", 20, 30, 2),
        kernel("gemm", 100, 200, 1, **shape),
        kernel("add", 300, 400, 2, **shape),
    ]
    with imported(tmp_path, document(events)) as trace:
        columns = ("grid_x", "grid_y", "block_x", "global_x", "global_y")
        assert [tuple(row.values()) for row in rows(trace, "kernel", *columns)] == [
            (70, 2, 256, 17920, 3),
            (17920, 3, 256, None, None),
        ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", ("h2d", "pageable", "device")),
        ("Memcpy DtoH (Device -> Pinned)", ("d2h", "device", "pinned")),
        ("Memcpy PtoP (Device -> Device)", ("p2p", "device", "device")),
        ("Memcpy HtoA (Managed -> Array)", ("h2d", "managed", "array")),
        ("Memcpy HtoD (Host -> Device)", ("h2d", None, "device")),
        ("Memcpy M2D (Memory -> Device)", ("h2d", "pageable", "device_usm")),
        ("Memcpy D2H (Device -> Host)", ("d2h", "device_usm", "host_usm")),
        ("Memcpy S2D (Shared -> Device)", ("unknown", "shared_usm", "device_usm")),
        ("CopyDeviceToHost", ("unknown", None, None)),
    ],
)
def test_copies_say_their_direction_and_memory_in_their_name(
    name: str, expected: tuple[str, ...], tmp_path: Path
) -> None:
    events = [event("gpu_memcpy", name, 0, 10, device=0, stream=7, correlation=1, bytes=64)]
    with imported(tmp_path, document(events)) as trace:
        (row,) = rows(trace, "memcpy", "kind", "src_kind", "dst_kind")
        assert tuple(row.values()) == expected


def test_bytes_that_the_file_lacks_are_null(tmp_path: Path) -> None:
    events = [
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 0, 10, device=2, stream=0, correlation=1, kind="HtoD"),
        event("gpu_memset", "Memset (Device)", 20, 30, device=2, stream=0, correlation=2),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "memcpy", "bytes") == [None]
        assert column(trace, "memset", "bytes") == [None]
        assert column(trace, "memset", "memory_kind") == ["device"]


def test_bytes_that_only_the_call_states_are_taken_from_it(tmp_path: Path) -> None:
    # ROCm 6.2: hta_mi250_rocm62_minitoy.json of HolisticTraceAnalysis.
    events = [
        call("hipMemcpyWithStream", 0, 10, 117, src="0x55674ecd4180", dst="0x7fda0e810200", size="2560", kind="1"),
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 20, 30, device=2, stream=0, correlation=117),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "memcpy", "bytes") == [2560]


def test_xpu_work_has_queues_contexts_and_submission_times(tmp_path: Path) -> None:
    # libkineto/src/plugin/xpupti/XpuptiActivityHandlers.cpp: times as text, handles as addresses.
    args = {"device": 0, "sycl queue": 3, "context": "0x0000562ad0c5b000", "correlation": 8}
    queued = {"appended": "1.250", "submitted": "1.500"}
    events = [
        event("xpu_runtime", "urEnqueueKernelLaunch", 1000, 2000, correlation=8),
        event("kernel", "gemm", 3000, 4000, pid=0, tid=3, **args, **queued),
        event("gpu_memset", "Memset (7 -> Device)", 5000, 6000, pid=0, tid=3, **args, bytes=64),
    ]
    with imported(tmp_path, document(events)) as trace:
        (row,) = rows(trace, "kernel", "start_ns", "queued_ns", "submitted_ns", "stream_id", "thread_id")
        assert row == {
            **{"start_ns": 2000, "queued_ns": 250, "submitted_ns": 500, "stream_id": 3, "thread_id": PID},
        }
        assert rows(trace, "memset", "value", "memory_kind") == [{"value": 7, "memory_kind": "device_usm"}]
        assert len(rows(trace, "context")) == 1


def test_files_of_2021_have_other_names_and_text_for_ids(tmp_path: Path) -> None:
    stream = {"pid": 0, "tid": "stream 7"}
    work = {"device": 0, "context": 1, "stream": 7, "correlation": 311, "external id": 31}
    events = [
        event("Operator", "aten::to", 0, 9000, tid="4711") | {"args": {"Device": PID, "External id": 31}},
        event("Runtime", "cudaMemcpyAsync", 1000, 2000, tid="4711") | {"args": {"correlation": 311, "external id": 31}},
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 3000, 4000) | stream | {"args": work | {"bytes": 640}},
        event("Kernel", "k", 5000, 6000) | stream | {"args": work | {"correlation": 312}},
        event("Memset", "Memset (Device)", 7000, 8000) | stream | {"args": work | {"correlation": 313, "bytes": 4}},
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "api", "thread_id") == [PID]
        assert rows(trace, "memcpy", "bytes", "op_id", "stream_id") == [{"bytes": 640, "op_id": 31, "stream_id": 7}]
        assert column(trace, "kernel", "op_id") == [31]  # no call in the file, so by its external id
        assert column(trace, "memset", "bytes") == [4]


def test_streams_of_two_devices_may_have_the_same_number(tmp_path: Path) -> None:
    events = [kernel("a", 0, 10, 1, device=0), kernel("b", 20, 30, 2, device=1), kernel("c", 40, 50, 3, device=0)]
    with imported(tmp_path, document(events)) as trace:
        first, second, third = column(trace, "kernel", "stream_id")
        assert first == third == 7
        assert second != 7
        names = {row["stream_id"]: (row["device_id"], row["name"]) for row in rows(trace, "stream")}
        assert names == {7: (0, None), second: (1, "7 of device 1")}


def test_waits_come_from_sync_events_and_else_from_runtime_calls(tmp_path: Path) -> None:
    waits = [call("cudaStreamSynchronize", 0, 100, 1), call("cudaDeviceSynchronize", 200, 300, 2)]
    with imported(tmp_path, document(waits)) as trace:
        assert rows(trace, "sync", "kind", "thread_id", "end_ns") == [
            {"kind": "stream", "thread_id": PID, "end_ns": 100},
            {"kind": "device", "thread_id": PID, "end_ns": 300},
        ]
    stated = event("cuda_sync", "Event Sync", 0, 90, pid=0, tid=-1, stream=-1, correlation=1, device=0, context=1)
    with imported(tmp_path, document([*waits, stated])) as trace:
        assert rows(trace, "sync", "kind", "stream_id", "end_ns") == [
            {"kind": "event", "stream_id": None, "end_ns": 90}
        ]


def test_collectives_have_a_payload_and_a_group(tmp_path: Path) -> None:
    stated = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "BFloat16", "Group size": 8}
    stated |= {"Process Group Name": "0"}
    sent = {"Collective name": "send", "In msg nelems": 4, "dtype": "Float", "Dst Rank": 3, "Src Rank": 1}
    events = [
        kernel("ncclDevKernel_Generic(ncclDevComm*)", 0, 100, 1, **stated),
        kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)", 200, 300, 2),
        kernel("ncclDevKernel_SendRecv(ncclDevComm*)", 400, 500, 3, **sent),
        kernel("gemm", 600, 700, 4),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert len(rows(trace, "kernel")) == 4
        columns = ("kind", "bytes", "group", "group_size", "peer")
        assert [tuple(row.values()) for row in rows(trace, "collective", *columns)] == [
            ("all_reduce", 2000, "0", 8, None),
            ("reduce_scatter", None, None, None, None),
            ("send", 16, None, None, 3),
        ]


def test_shapes_are_text_and_device_annotations_are_not_work(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 10, Input_Dims=[[64, 32], [32, 8], []]),
        event("gpu_user_annotation", "step", 0, 10, pid=0, tid=7),
        kernel("k", 20, 30, 1),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "op", "shapes") == ["[[64,32],[32,8],[]]"]
        assert len(rows(trace, "kernel")) == 1
        assert "range" not in trace.present
