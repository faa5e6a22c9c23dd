"""Perfetto traces, built here from the field numbers of Perfetto's protos; expected values are what was put in."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_maker import column, rows
from perfetto_maker import BEGIN, CLEARED, COUNTER, END, HOST, INSTANT, NEEDS_STATE, message, packet, slice_, track

from pasta.errors import PastaError
from pasta.importers import Kind, detect, import_files
from pasta.importers.wire import WireError, fields
from pasta.trace import Trace


def imported(folder: Path, trace: bytes) -> Trace:
    (folder / "trace.pftrace").write_bytes(trace)
    import_files([folder / "trace.pftrace"], folder / "out.pasta")
    return Trace.open(folder / "out.pasta")


def test_slices_of_any_program_are_ranges_on_their_thread(tmp_path: Path) -> None:
    inner = slice_(2, "inner", 120, 180)
    outer = packet(f8=100, f11=message(f9=BEGIN, f11=2, f23="outer", f22=["a", "b"])) + inner
    trace = HOST + outer + packet(f8=200, f11=message(f9=END, f11=2))
    trace += packet(f8=150, f11=message(f9=INSTANT, f11=1, f23="mark"))
    trace += packet(f8=160, f11=message(f9=COUNTER, f11=1, f30=5))
    with imported(tmp_path, trace) as opened:
        columns = ("name", "category", "start_ns", "end_ns", "pid", "thread_id", "kind")
        assert [tuple(row.values()) for row in rows(opened, "range", *columns)] == [
            ("outer", "a,b", 0, 100, 4711, 4712, "push_pop"),
            ("inner", "app", 20, 80, 4711, 4712, "push_pop"),
            ("mark", None, 50, 50, 4711, None, "mark"),
        ]
        numbers = {row["name"]: (row["range_id"], row["parent_id"]) for row in rows(opened, "range")}
        assert numbers["inner"][1] == numbers["outer"][0]
        assert numbers["outer"][1] is None
        assert rows(opened, "process", "pid", "command") == [{"pid": 4711, "command": "python"}]
        assert rows(opened, "thread", "thread_id", "name") == [{"thread_id": 4712, "name": "worker"}]
        assert opened.manifest["import"]["unplaced"] == {"counter values": 1}


def test_names_are_interned_by_sequence_and_forgotten_when_cleared(tmp_path: Path) -> None:
    def names(sequence: int, name: str, category: str) -> bytes:
        interned = message(f1=message(f1=1, f2=category), f2=message(f1=7, f2=name))
        return packet(sequence, f13=CLEARED, f12=interned)

    def event(sequence: int, at: int, kind: int, uuid: int) -> bytes:
        parts = {"f3": 1, "f10": 7} if kind == BEGIN else {}
        return packet(sequence, f8=at, f13=NEEDS_STATE, f11=message(f9=kind, f11=uuid, **parts))

    trace = names(1, "one", "cat one") + names(2, "two", "cat two")
    trace += event(1, 10, BEGIN, 50) + event(2, 20, BEGIN, 60) + event(1, 30, END, 50) + event(2, 40, END, 60)
    trace += names(1, "three", "cat three") + event(1, 50, BEGIN, 50) + event(1, 60, END, 50)
    with imported(tmp_path, trace) as opened:
        assert [(row["name"], row["category"]) for row in rows(opened, "range")] == [
            *(("one", "cat one"), ("two", "cat two"), ("three", "cat three")),
        ]


def test_events_after_dropped_packets_wait_for_cleared_state(tmp_path: Path) -> None:
    whole = packet(1, f13=CLEARED, f12=message(f2=message(f1=7, f2="known")))
    event = packet(1, f8=10, f13=NEEDS_STATE, f11=message(f9=INSTANT, f11=5, f10=7))
    gap = packet(1, f42=1)
    with imported(tmp_path, whole + event + gap + event + whole + event) as opened:
        assert column(opened, "range", "name") == ["known", "known"]
        assert opened.manifest["import"]["skipped"] == {
            "event whose names were lost with dropped packets": 1,
            "gap in a sequence: packets were dropped while recording": 1,
        }


def test_times_may_be_differences_on_a_clock_of_the_sequence(tmp_path: Path) -> None:
    # Clock 64 counts in microseconds from its reading 5 at boot time 1 000 000 and UNIX time 10**18 + 7.
    clocks = [message(f1=6, f2=1_000_000), message(f1=1, f2=10**18 + 7), message(f1=64, f2=5, f3=1, f4=1000)]
    trace = packet(1, f6=message(f1=clocks), f59=message(f58=64, f11=message(f11=9)), f13=CLEARED)
    trace += packet(1, f8=2, f11=message(f9=BEGIN, f23="a"))
    trace += packet(1, f8=3, f11=message(f9=END))
    trace += packet(1, f8=1_010_000, f58=6, f11=message(f9=INSTANT, f23="b"))
    trace += packet(2, f8=1, f58=65, f11=message(f9=INSTANT, f23="no such clock"))
    with imported(tmp_path, trace) as opened:
        assert [(row["name"], row["start_ns"], row["end_ns"]) for row in rows(opened, "range")] == [
            *(("a", 0, 3000), ("b", 8000, 8000)),
        ]
        assert opened.manifest["import"]["epoch_ns"] == 10**18 + 7 + 2000
        assert opened.manifest["import"]["skipped"] == {"event without a time on a known clock": 1}


def test_packets_may_be_compressed(tmp_path: Path) -> None:
    with imported(tmp_path, packet(f50=zlib.compress(HOST + slice_(2, "packed", 10, 20)))) as opened:
        assert column(opened, "range", "name") == ["packed"]
        assert column(opened, "range", "thread_id") == [4712]


def test_packets_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    bomb = packet(f50=zlib.compress(bytes(80 << 20), 9))
    with pytest.raises(PastaError, match="unpacks to too much"):
        imported(tmp_path, HOST + bomb)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.pftrace"]


def test_traces_of_rocprofv3_have_kernels_copies_and_calls(tmp_path: Path) -> None:
    # Annotations of rocprofiler-sdk's source/lib/output/generatePerfetto.cpp.
    def timed(uuid: int, name: str, start: int, end: int, category: str, **args: Any) -> bytes:
        stated = {"begin_ns": start, "end_ns": end, "delta_ns": end - start} | args
        return slice_(uuid, name, start, end, category, **stated)

    trace = HOST + track(7, 'STREAM [" 3 "] ')
    trace += timed(2, "hipLaunchKernel", 100, 200, "hip_api", tid=4712, corr_id=9, kind=1)
    trace += timed(2, "hsa_signal_wait", 110, 120, "hsa_api", tid=4712, corr_id=10)
    trace += timed(2, "step", 50, 900, "marker_api", tid=4712, corr_id=8)
    launch = {"agent": "Agent-4", "corr_id": 9, "queue": 0, "tid": 4712, "stream_ID": 3, "VGPR_Count": 32}
    sizes = {"Scratch_Size": 64, "LDS_Block_Size": 512, "workgroup_size": 256, "grid_size": 65536}
    trace += timed(7, "gemm(float*)", 300, 400, "kernel_dispatch", **launch, **sizes)
    copy = {"src_agent": "Agent-0", "dst_agent": "Agent-4", "copy_bytes": 4096, "corr_id": 11, "stream_ID": 3}
    trace += timed(7, "MEMORY_COPY_HOST_TO_DEVICE", 500, 600, "memory_copy", tid=4712, **copy)
    with imported(tmp_path, trace) as opened:
        assert [(row["name"], row["api"], row["correlation_id"]) for row in rows(opened, "api")] == [
            *(("hipLaunchKernel", "hip", 9), ("hsa_signal_wait", "hsa", 10)),
        ]
        columns = ("name", "start_ns", "end_ns", "device_id", "stream_id", "thread_id", "correlation_id")
        (kernel,) = rows(opened, "kernel", *columns, "registers", "local_bytes", "grid_x", "block_x")
        assert tuple(kernel.values()) == ("gemm(float*)", 250, 350, 4, 3, 4712, 9, 32, 64, None, None)
        (memcpy,) = rows(opened, "memcpy", "kind", "bytes", "device_id", "correlation_id")
        assert tuple(memcpy.values()) == ("h2d", 4096, 4, 11)
        assert rows(opened, "range", "name", "source") == [{"name": "step", "source": "roctx"}]
        assert rows(opened, "device", "device_id", "vendor") == [{"device_id": 4, "vendor": "AMD"}]
        unplaced = opened.manifest["import"]["unplaced"]
        assert {"kernel: workgroup_size", "kernel: grid_size", "kernel: LDS_Block_Size"} == set(unplaced)


def test_traces_with_kinetos_categories_are_read_as_kinetos(tmp_path: Path) -> None:
    trace = HOST + track(7, "stream 7")
    trace += slice_(2, "aten::add", 1000, 2000, "cpu_op", External__id=1)
    trace += slice_(2, "cudaLaunchKernel", 1100, 1200, "cuda_runtime", correlation=5)
    trace += slice_(7, "add", 3000, 3501, "kernel", device=0, stream=7, correlation=5)
    trace += slice_(7, "a kernel thread", 4000, 5000, "kernel")
    with imported(tmp_path, trace) as opened:
        columns = ("name", "start_ns", "end_ns", "op_id", "thread_id", "stream_id", "pid")
        (kernel,) = rows(opened, "kernel", *columns)
        assert tuple(kernel.values()) == ("add", 2000, 2501, 1, 4712, 7, 4711)
        assert column(opened, "range", "name") == ["a kernel thread"]


def test_gpu_stages_with_a_launch_are_kernels(tmp_path: Path) -> None:
    def argument(name: str, value: int) -> bytes:
        return message(f2=name, f4=value)

    kernel = message(f1=3, f2="_Z4gemm", f3="gemm()", f5=[argument("registers_per_thread", 40)])
    stages = [message(f1=1, f2="queue 0"), message(f1=2, f2="compute", f4=2)]
    interned = message(f24=stages, f1000=kernel)
    grid, block = message(f1=64, f2=2, f3=1), message(f1=128, f2=1, f3=1)
    launch = message(f1=grid, f2=block, f3=[argument("shared_mem_static", 512), argument("shared_mem_dynamic", 64)])
    stage = message(f1=1, f2=500, f11=1, f13=1, f14=2, f19=3, f21=launch)
    copy = message(f1=2, f2=100, f11=1, f13=1, f14=1, f17="Memcpy HtoD (Pinned -> Device)")
    trace = packet(f13=CLEARED, f12=interned) + packet(f8=1000, f53=stage) + packet(f8=2000, f53=copy)
    with imported(tmp_path, trace) as opened:
        columns = ("name", "mangled", "start_ns", "end_ns", "device_id", "registers", "static_shared_bytes")
        more = ("dynamic_shared_bytes", "grid_x", "grid_y", "block_x")
        assert [tuple(row.values()) for row in rows(opened, "kernel", *columns, *more)] == [
            ("gemm()", "_Z4gemm", 0, 500, 1, 40, 512, 64, 64, 2, 128)
        ]
        assert rows(opened, "memcpy", "kind", "src_kind", "start_ns") == [
            {"kind": "h2d", "src_kind": "pinned", "start_ns": 1000}
        ]
        assert rows(opened, "stream", "stream_id", "device_id", "name") == [
            {"stream_id": 1, "device_id": 1, "name": "queue 0"}
        ]


def test_annotations_hold_every_kind_of_value() -> None:
    from pasta.importers.pftrace.sequence import Sequence

    sequence = Sequence()
    sequence.intern(message(f3=message(f1=4, f2="interned name"), f29=message(f1=6, f2="interned text")))
    notes = [
        message(f10="bool", f2=1),
        message(f10="unsigned", f3=2**64 - 1),
        message(f10="signed", f4=-5),
        message(f10="double", f5=0.5),
        message(f10="text", f6="t"),
        message(f1=4, f17=6),
        message(f10="list", f12=[message(f3=1), message(f6="x")]),
        message(f10="dict", f11=[message(f10="a", f3=1), message(f10="b", f12=[message(f3=2)])]),
        message(f10="nothing"),
    ]
    assert sequence.arguments(notes) == {
        **{"bool": True, "unsigned": 2**64 - 1, "signed": -5, "double": 0.5, "text": "t"},
        **{"interned name": "interned text", "list": [1, "x"], "dict": {"a": 1, "b": [2]}, "nothing": None},
    }


def test_a_cut_trace_gives_what_was_whole(tmp_path: Path) -> None:
    trace = HOST + slice_(2, "whole", 10, 20) + slice_(2, "cut", 30, 40)
    with imported(tmp_path, trace[:-3]) as opened:
        ends = {row["name"]: row["end_ns"] for row in rows(opened, "range")}
        assert ends == {"whole": 10, "cut": None}
        (loss,) = rows(opened, "loss", "cause")
        assert "is cut" in loss["cause"]


def test_an_xspace_is_not_a_perfetto_trace(tmp_path: Path) -> None:
    # XSpace begins with field 1, a plane: number, name and lines.
    (tmp_path / "x.pb").write_bytes(message(f1=message(f1=1, f2="/host:CPU", f3=message(f1=1))))
    try:
        kind = detect(tmp_path / "x.pb")
    except PastaError:
        return
    assert kind is not Kind.PFTRACE


@given(content=st.binary(max_size=200))
@settings(max_examples=300)
def test_any_bytes_are_fields_or_an_error(content: bytes) -> None:
    try:
        for number, value in fields(content):
            assert number >= 0
            assert isinstance(value, bytes) or 0 <= value < 2**64
    except WireError:
        pass
