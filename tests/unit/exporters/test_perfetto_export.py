"""A Perfetto file, decoded by the protobuf classes that Perfetto publishes, shows what the trace holds.

`Timeline` closes slices as Perfetto does: events are sorted by time, those of equal time in the order of the file, and
an end closes what was opened last on its track.
"""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.exporters import perfetto
from pasta.tools.testing import MemoryTrace, trace_of

trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


@dataclass
class Slice:
    track: str
    name: str
    start: int
    end: int | None
    category: str
    arguments: dict[str, Any]
    flows: list[int]


@dataclass
class Timeline:
    """A decoded file: tracks are named by their path from the process down."""

    slices: list[Slice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    tracks: dict[int, Any] = field(default_factory=dict)

    def find(self, name: str) -> Slice:
        (found,) = [s for s in self.slices if s.name == name]
        return found


def export(trace: MemoryTrace) -> Timeline:
    file = io.BytesIO()
    written = perfetto.write(trace, file)
    timeline = decode(file.getvalue())
    assert written == len(timeline.slices) + sum(map(len, timeline.counters.values()))
    return timeline


def decode(data: bytes) -> Timeline:
    decoded = trace_pb2.Trace.FromString(data)
    assert decoded.packet[0].sequence_flags == 1  # SEQ_INCREMENTAL_STATE_CLEARED
    timeline = Timeline()
    names: dict[str, dict[int, str]] = defaultdict(dict)
    events = []
    for packet in decoded.packet:
        assert packet.trusted_packet_sequence_id == 1
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            names[kind] |= {entry.iid: entry.name for entry in getattr(packet.interned_data, kind)}
        for entry in packet.interned_data.debug_annotation_string_values:
            names["strings"][entry.iid] = entry.str.decode()
        if packet.HasField("track_descriptor"):
            timeline.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            events.append((packet.timestamp, packet.track_event))
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    for at, event in sorted(events, key=lambda pair: pair[0]):
        track = path(timeline, event.track_uuid)
        if event.type == COUNTER:
            timeline.counters[track].append((at, event.counter_value))
        elif event.type == END:
            open_slices[event.track_uuid].pop().end = at
        else:
            arguments = {
                names["debug_annotation_names"][a.name_iid]: names["strings"][a.string_value_iid]
                if a.HasField("string_value_iid")
                else a.int_value
                for a in event.debug_annotations
            }
            category = names["event_categories"][event.category_iids[0]] if event.category_iids else ""
            name = names["event_names"][event.name_iid]
            one = Slice(track, name, at, None, category, arguments, list(event.flow_ids))
            timeline.slices.append(one)
            if event.type == BEGIN:
                open_slices[event.track_uuid].append(one)
    assert not any(open_slices.values())
    return timeline


def path(timeline: Timeline, uuid: int) -> str:
    track = timeline.tracks[uuid]
    if track.HasField("process"):
        return f"{track.process.process_name}[{track.process.pid}]"
    if track.HasField("thread"):
        return f"thread {track.thread.pid}/{track.thread.tid} {track.thread.thread_name}".rstrip()
    return f"{path(timeline, track.parent_uuid)} > {track.name}"


def test_host_rows_nest_on_their_thread() -> None:
    timeline = export(
        trace_of(
            thread=[{"thread_id": 7, "name": "main"}],
            range=[{"thread_id": 7, "start_ns": 0, "end_ns": 100, "name": "step", "kind": "push_pop", "domain": "app"}],
            op=[{"thread_id": 7, "start_ns": 0, "end_ns": 100, "name": "aten::mm", "module": "layers.0"}],
            api=[{"thread_id": 7, "start_ns": 10, "end_ns": 20, "name": "launch", "api": "opencl", "result": -5}],
        )
    )
    assert {s.track for s in timeline.slices} == {"thread 1/7 main"}
    assert [(s.name, s.start, s.end) for s in timeline.slices] == [
        ("step", 0, 100),
        ("aten::mm", 0, 100),
        ("launch", 10, 20),
    ]
    assert timeline.find("aten::mm").arguments == {"module": "layers.0"}
    assert (timeline.find("launch").category, timeline.find("launch").arguments) == ("opencl", {"result": -5})


def test_device_work_is_on_its_stream_below_its_device() -> None:
    where = {"rank": 2, "device_id": 0}
    timeline = export(
        trace_of(
            process=[{"rank": 2, "executable": "/usr/bin/python3", "command": "python3 train.py"}],
            device=[{**where, "name": "H200"}],
            stream=[{"rank": 2, "stream_id": 3, "name": "copies"}],
            kernel=[
                {**where, "stream_id": 4, "start_ns": 5, "end_ns": 9, "name": "gemm"}
                | {"grid_x": 2, "grid_y": 3, "grid_z": 1, "registers": 64}
            ],
            memcpy=[{**where, "stream_id": 3, "start_ns": 1, "end_ns": 4, "kind": "h2d", "bytes": 4096}],
        )
    )
    assert timeline.find("gemm").track == "rank 2 python3[1] > device 0: H200 > stream 4"
    assert timeline.find("gemm").arguments == {"grid": "2 x 3 x 1", "registers": 64}
    assert timeline.find("memcpy h2d").track == "rank 2 python3[1] > device 0: H200 > copies"
    assert timeline.find("memcpy h2d").arguments == {"bytes": 4096}


def test_arrows_join_a_call_with_what_it_launched() -> None:
    timeline = export(
        trace_of(
            api=[
                {"pid": 1, "start_ns": 0, "end_ns": 1, "name": "launch A", "correlation_id": 8},
                {"pid": 2, "start_ns": 0, "end_ns": 1, "name": "launch B", "correlation_id": 8},
                {"pid": 2, "start_ns": 2, "end_ns": 3, "name": "alone"},
            ],
            kernel=[
                {"pid": 1, "start_ns": 5, "end_ns": 6, "name": "A", "correlation_id": 8},
                {"pid": 2, "start_ns": 5, "end_ns": 6, "name": "B", "correlation_id": 8},
            ],
        )
    )
    assert timeline.find("launch A").flows == timeline.find("A").flows
    assert timeline.find("launch B").flows == timeline.find("B").flows
    assert len({*timeline.find("A").flows, *timeline.find("B").flows}) == 2
    assert timeline.find("alone").flows == []


def test_what_has_no_length_is_an_instant_and_what_has_no_time_is_left_out() -> None:
    timeline = export(
        trace_of(
            range=[{"start_ns": 3, "name": "mark", "kind": "mark", "thread_id": 1}],
            uvm=[{"start_ns": 4, "end_ns": 4, "kind": "fault_gpu", "count": 2}],
            kernel=[{"name": "untimed"}],
        )
    )
    assert [(s.name, s.start, s.end) for s in timeline.slices] == [("mark", 3, None), ("fault_gpu", 4, None)]


def test_memory_is_summed_over_objects_but_not_over_their_parts() -> None:
    def event(at: int, action: str, size: int, **more: Any) -> dict[str, Any]:
        return {"start_ns": at, "action": action, "bytes": size, "kind": "device", "device_id": 0, **more}

    timeline = export(
        trace_of(
            alloc=[
                event(1, "alloc", 100),
                event(2, "alloc", 50),
                event(3, "alloc", 10, parent_object_id=1),
                event(4, "free", 100),
            ],
            tensor=[{"start_ns": 2, "allocated_bytes": 64, "device_type": "cuda", "device_index": 1}],
        )
    )
    assert timeline.counters == {
        "process[1] > device 0 > device memory": [(1, 100), (2, 150), (4, 50)],
        "process[1] > tensors on cuda1": [(2, 64)],
    }


def test_processes_of_two_ranks_with_one_pid_stay_apart() -> None:
    timeline = export(
        trace_of(kernel=[{"rank": rank, "start_ns": 0, "end_ns": 9, "name": f"rank {rank}"} for rank in (0, 1)])
    )
    assert timeline.find("rank 0").track != timeline.find("rank 1").track
    pids = {t.process.pid for t in timeline.tracks.values() if t.HasField("process")}
    assert len(pids) == 2


def test_times_before_zero_are_shifted_since_perfetto_has_none() -> None:
    trace = trace_of({"time_span_ns": [-50, 9]}, kernel=[{"start_ns": -50, "end_ns": -10, "name": "early"}])
    assert (export(trace).find("early").start, export(trace).find("early").end) == (0, 40)


def test_an_empty_trace_is_a_valid_file() -> None:
    assert export(trace_of()).slices == []


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 10), st.integers(0, 2)), max_size=25))
def test_every_slice_begins_and_ends_where_the_row_does(rows: list[tuple[int, int, int]]) -> None:
    """Kernels that overlap in any way, on three streams, are all found again with both times."""
    kernels = [
        {"start_ns": start, "end_ns": start + length, "name": f"k{i}", "stream_id": stream}
        for i, (start, length, stream) in enumerate(rows)
    ]
    timeline = export(trace_of(kernel=kernels) if kernels else trace_of())
    found = {s.name: (s.start, s.end) for s in timeline.slices}
    assert found == {k["name"]: (k["start_ns"], k["end_ns"] if k["end_ns"] > k["start_ns"] else None) for k in kernels}
