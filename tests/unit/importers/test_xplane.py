"""XLA profiles, on messages encoded here by hand."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import real_traces
from hypothesis import given
from hypothesis import strategies as st
from import_helper import FLIPS, MANY_FILES, import_damaged, imported
from xspace_maker import Plane, write

from pasta.errors import PastaError
from pasta.importers import detect, import_files

US = 1_000_000  # picoseconds


@pytest.fixture
def gpu() -> Plane:
    about = {"device_vendor": "Nvidia", "core_count": 132, "memory_size": 80 << 30, "clock_rate": 1980000}
    return Plane("/device:GPU:1", **about, compute_cap_major=9, compute_cap_minor=0)


def test_a_kernel_is_placed_by_its_line_and_sized_by_its_details(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #16(Kernel)", timestamp_ns=1000)
    details = "regs:32 static_shared:512 dynamic_shared:1024 grid:4,2,1 block:128,1,1 occ_pct:50"
    gpu.event("loop_fusion", 3 * US, 2 * US + 999, correlation_id=7, kernel_details=f"&{details}", hlo_op="&fusion.1")
    path = write(tmp_path / "host.xplane.pb", gpu)
    assert detect(path).value == "xplane"
    trace = imported(path)
    assert trace.rows("kernel") == [
        {
            # 1000 ns + 3 us; the end, 2000.999 ns later, is cut to whole nanoseconds.
            **{"pid": 0, "start_ns": 4000, "end_ns": 6000, "device_id": 1, "stream_id": 16, "correlation_id": 7},
            **{"launch_id": 1, "name": "loop_fusion", "grid_x": 4, "grid_y": 2, "grid_z": 1, "block_x": 128},
            **{"block_y": 1, "block_z": 1, "registers": 32, "static_shared_bytes": 512, "dynamic_shared_bytes": 1024},
        }
    ]
    assert trace.rows("device") == [
        {
            **{"pid": 0, "device_id": 1, "vendor": "Nvidia", "kind": "gpu", "memory_bytes": 80 << 30},
            **{"multiprocessors": 132, "clock_khz": 1980000, "architecture": "9.0", "timestamps": True},
        }
    ]
    assert trace.rows("process", "host") == ["node1"]
    assert trace.summary.unplaced == {"stat hlo_op": 1}


def test_amds_kernels_lose_their_suffix_and_keep_their_group_memory(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0", device_vendor="AMD")
    gpu.line("Stream #15(Kernel)")
    details = " grid:4,64,1 block:256,1,1 private_mem:16 group_mem:8704 occ_pct:0"
    gpu.event("wrapped_add.kd", 0, US, kernel_details=details)
    assert imported(write(tmp_path / "a.pb", gpu)).rows(
        "kernel", "name", "grid_y", "static_shared_bytes", "dynamic_shared_bytes", "local_bytes"
    ) == [("wrapped_add", 64, 8704, None, 16)]


def test_lines_that_are_derived_from_streams_count_nothing_twice(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #16(Kernel)")
    gpu.event("add", 0, US, kernel_details="grid:1,1,1 block:1,1,1")
    for name in ("XLA Ops", "XLA Modules", "Steps", "TensorFlow Ops"):
        gpu.line(name)
        gpu.event("add", 0, US)
    trace = imported(write(tmp_path / "a.pb", gpu))
    assert trace.rows("kernel", "name") == ["add"]
    assert trace.summary.unplaced == {
        f"event of the derived line {name}": 1 for name in ("XLA Ops", "XLA Modules", "Steps", "TensorFlow Ops")
    }


def test_copies_and_fills_are_known_by_details_or_by_line(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #18(MemcpyH2D)")
    gpu.event("MemcpyH2D", 0, US, memcpy_details="kind_src:pageable kind_dst:device size:655360 dest:0 async:1")
    gpu.event("MemcpyH2D", 2 * US, US)
    gpu.line("Stream #19(MemcpyD2H,Memset,Kernel)")
    gpu.event("MemcpyD2H", 4 * US, US, memcpy_details="kind:Unknown size:0 dest:0 async:0")
    gpu.event("MemcpyOther", 6 * US, US, memcpy_details="size:8")
    gpu.event("Memset", 8 * US, US, memset_details="kind:device num_bytes:4096 async:1")
    gpu.event("fusion", 10 * US, US, kernel_details="grid:1,1,1 block:1,1,1")
    trace = imported(write(tmp_path / "a.pb", gpu))
    assert trace.rows("memcpy", "start_ns", "kind", "bytes", "asynchronous", "stream_id") == [
        (0, "h2d", 655360, True, 18),
        (2000, "h2d", None, None, 18),
        (4000, "d2h", None, False, 19),
        (6000, "unknown", 8, None, 19),
    ]
    assert trace.rows("memset", "start_ns", "bytes") == [(8000, 4096)]
    assert trace.rows("kernel", "name") == ["fusion"]


def test_device_work_gets_the_thread_of_the_call_that_started_it(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #16(Kernel)")
    gpu.event("add", 9 * US, US, kernel_details="grid:1,1,1", correlation_id=22)
    gpu.event("mul", 11 * US, US, kernel_details="grid:1,1,1", correlation_id=23)
    host = Plane("/host:CPU")
    host.line("Host Threads/1083", timestamp_ns=100)
    host.event("cuLaunchKernel", 0, US, correlation_id=22, device_id=5)
    trace = imported(write(tmp_path / "a.pb", gpu, host))
    assert trace.rows("kernel", "name", "thread_id") == [("add", 1083), ("mul", None)]
    columns = ("start_ns", "end_ns", "thread_id", "api", "name", "correlation_id")
    assert trace.rows("api", *columns) == [(100, 1100, 1083, "cuda_driver", "cuLaunchKernel", 22)]
    assert trace.summary.unmatched == {"device work whose call is not in the file": 1}


def test_ranges_of_a_thread_nest_and_python_is_a_category(tmp_path: Path) -> None:
    host = Plane("/host:CPU")
    host.line("python", identity=1085180131661504713)
    host.event("inner", 2 * US, US)  # not in order of start
    host.event("$train.py:7 step", 0, 10 * US)
    host.event("ThreadpoolListener::StartRegion", 5 * US, 0)
    trace = imported(write(tmp_path / "a.pb", host))
    ranges = {row["name"]: row for row in trace.rows("range")}
    assert ranges["inner"]["parent_id"] == ranges["$train.py:7 step"]["range_id"]
    assert ranges["$train.py:7 step"]["category"] == "python"
    assert ranges["ThreadpoolListener::StartRegion"]["kind"] == "mark"
    assert {row["source"] for row in ranges.values()} == {"jax"}
    assert trace.rows("thread", "name") == ["python"]


def test_the_allocators_events_are_tensors(tmp_path: Path) -> None:
    gpu = Plane("/device:GPU:0", device_vendor="AMD")
    host = Plane("/host:CPU")
    host.line("python")
    memory = {"allocation_bytes": 512, "requested_bytes": 500, "bytes_allocated": 4096, "bytes_reserved": 8192}
    host.event("MemoryAllocation", US, 0, allocator_name="&GPU_0_bfc", addr=0x7F0000000000, **memory)
    host.event("MemoryDeallocation", 2 * US, 0, allocator_name="&xla_gpu_host_bfc", addr=0x1000, **memory)
    trace = imported(write(tmp_path / "a.pb", gpu, host))
    columns = (
        "start_ns",
        "action",
        "address",
        "bytes",
        "allocated_bytes",
        "reserved_bytes",
        "device_type",
        "device_index",
    )
    assert trace.rows("tensor", *columns) == [
        (1000, "alloc", 0x7F0000000000, 512, 4096, 8192, "hip", 0),
        (2000, "free", 0x1000, 512, 4096, 8192, "cpu", None),
    ]


def test_a_tpu_counts_operations_and_not_what_encloses_them(tmp_path: Path) -> None:
    tpu = Plane("/device:TPU:0", device_type_string="TPU v4")
    tpu.line("Steps")
    tpu.event("1", 0, 10 * US)
    tpu.line("XLA Ops")
    tpu.event("%while.2 = while(...)", 0, 8 * US, display="while.2")
    tpu.event("%fusion.1 = fusion(...)", US, 2 * US, display="fusion.1")
    tpu.event("%copy.3 = copy(...)", 4 * US, US, display="copy.3")
    tpu.event("%add.4 = add(...)", 8 * US, US)
    trace = imported(write(tmp_path / "a.pb", tpu))
    assert trace.rows("kernel", "name", "start_ns", "end_ns", "stream_id") == [
        ("fusion.1", 1000, 3000, None),
        ("copy.3", 4000, 5000, None),
        ("%add.4 = add(...)", 8000, 9000, None),
    ]
    assert trace.rows("device", "kind", "name") == [("accelerator", "TPU v4")]
    assert trace.summary.skipped == {"XLA operation whose time is that of the operations in it": 1}


def test_hosts_of_one_job_share_a_clock(tmp_path: Path) -> None:
    paths = []
    for host, epoch in ((0, 10**18), (1, 10**18 + 700)):
        gpu = Plane("/device:GPU:0")
        gpu.line("Stream #1(Kernel)", timestamp_ns=50)
        gpu.event("add", 0, US, kernel_details="grid:1,1,1")
        environment = Plane("Task Environment", profile_start_time=epoch)
        paths.append(write(tmp_path / f"host{host}.xplane.pb", gpu, environment, host=f"node{host}"))
    trace = imported(*paths)
    assert trace.rows("kernel", "pid", "start_ns") == [(0, 50), (1, 750)]
    assert trace.rows("process", "pid", "host") == [(0, "node0"), (1, "node1")]
    assert trace.rows("clock", "source_ns") == [10**18]


def test_of_a_file_that_is_cut_whole_planes_are_kept(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #16(Kernel)")
    gpu.event("add", 0, US, kernel_details="grid:1,1,1")
    host = Plane("/host:CPU")
    host.line("python")
    host.event("step", 0, US)
    whole = write(tmp_path / "whole.pb", gpu, host).read_bytes()
    path = tmp_path / "cut.pb"
    path.write_bytes(whole[: len(whole) - 40])
    trace = imported(path)
    assert trace.rows("kernel", "name") == ["add"]
    assert trace.rows("range") == []
    assert trace.rows("loss", "table", "records") == [("kernel", None)]


def test_a_file_that_was_copied_as_text_is_refused_with_the_reason(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #16(Kernel)")
    for index in range(9):
        gpu.event("add", 10**9 * index + 200, 300 * US, kernel_details="grid:1,1,1")
    raw = write(tmp_path / "whole.pb", gpu).read_bytes()
    path = tmp_path / "text.pb"
    path.write_text(raw.decode("utf-8", "replace"), encoding="utf-8")
    with pytest.raises(PastaError, match=r"replaced its bytes by U\+FFFD") as error:
        import_files([path], tmp_path / "out.pasta")
    assert error.value.exit_code == 2


def test_a_packed_file_is_read(gpu: Plane, tmp_path: Path) -> None:
    gpu.line("Stream #16(Kernel)")
    gpu.event("add", 0, US, kernel_details="grid:1,1,1")
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes(gzip.compress(write(tmp_path / "plain", gpu).read_bytes()))
    assert imported(path).rows("kernel", "name") == ["add"]


def test_a_profile_without_events_is_nothing_to_import(gpu: Plane, tmp_path: Path) -> None:
    with pytest.raises(PastaError, match="nothing to import"):
        import_files([write(tmp_path / "idle.pb", gpu)], tmp_path / "out.pasta")


@MANY_FILES
@given(
    events=st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 2**50), st.text("abc", min_size=1)), min_size=1, max_size=20
    ),
    timestamp=st.integers(0, 10**12),
)
def test_kernels_round_trip(tmp_path: Path, events: list[tuple[int, int, str]], timestamp: int) -> None:
    gpu = Plane("/device:GPU:0")
    gpu.line("Stream #1(Kernel)", timestamp_ns=timestamp)
    for offset, duration, name in events:
        gpu.event(name, offset, duration, kernel_details="grid:1,1,1")
    want = sorted(
        ((timestamp * 1000 + offset) // 1000, (timestamp * 1000 + offset + duration) // 1000, name)
        for offset, duration, name in events
    )
    trace = imported(write(tmp_path / "generated.pb", gpu))
    assert sorted(trace.rows("kernel", "start_ns", "end_ns", "name")) == want


@MANY_FILES
@given(flips=FLIPS)
def test_damaged_bytes_never_do_more_than_fail_with_a_message(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    gpu = Plane("/device:GPU:0", device_vendor="AMD", compute_cap_major=9)
    gpu.line("Stream #1(Kernel)")
    gpu.event("add", 5, US, kernel_details="grid:1,1,1 block:2,2,2", correlation_id=4)
    host = Plane("/host:CPU")
    host.line("python")
    host.event("MemoryAllocation", US, 0, allocator_name="&GPU_0_bfc", addr=4, fragmentation=0.5)
    environment = Plane("Task Environment", profile_start_time=5)
    import_damaged(write(tmp_path / "host.xplane.pb", gpu, host, environment), flips)


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
@pytest.mark.parametrize(
    ("name", "kernels", "busy_ns", "calls", "others"),
    [
        # Counted with google.protobuf from a descriptor of the five messages; ranges and tensors are what is left.
        ("tl_mi300_jax08_attention", 105, 3845562, 105, 4170),
        ("tl_mi300_jax08_gemm", 54, 3475484, 54, 3674),
        ("tl_mi300_jax_conv_minimal_08", 235, 28137077, 234, 3181),
    ],
)
def test_real_profiles_of_an_mi300x(
    tmp_path: Path, name: str, kernels: int, busy_ns: int, calls: int, others: int
) -> None:
    folder = real_traces.folder()
    assert folder is not None
    trace = imported(folder / "xla" / f"{name}.xplane.pb", into=tmp_path)
    frame = trace.frame("kernel")
    assert (frame.height, (frame["end_ns"] - frame["start_ns"]).sum()) == (kernels, busy_ns)
    assert len(trace.rows("api")) == calls
    assert len(trace.rows("range")) + len(trace.rows("tensor")) == others


@pytest.mark.skipif(real_traces.folder() is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_a_public_tpu_profile_that_was_copied_as_text_is_refused(tmp_path: Path) -> None:
    folder = real_traces.folder()
    assert folder is not None
    with pytest.raises(PastaError, match="damaged XLA profile"):
        import_files([folder / "xla" / "xprof_tpu_inference_2.xplane.pb"], tmp_path / "out.pasta")
