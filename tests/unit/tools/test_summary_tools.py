"""The tools that summarise one table: api, memcpy, sync, uvm, ranges, graphs, events. Numbers are by hand."""

from __future__ import annotations

import pytest
from golden import MS, US, result_of, shown, table

from pasta.errors import PastaError
from pasta.tools.testing import trace_of


def test_api_counts_calls_and_failures() -> None:
    calls = [
        {"name": "malloc", "api": "cuda_runtime", "start_ns": 0, "end_ns": 30 * US, "result": 0},
        {"name": "malloc", "api": "cuda_runtime", "start_ns": 40 * US, "end_ns": 50 * US, "result": 2},
        {"name": "launch", "api": "cuda_runtime", "start_ns": 60 * US, "end_ns": 70 * US},
    ]
    # malloc: 30 + 10 of 50 us, and one of its two calls did not return 0. The result of launch is unknown.
    fields = ("function", "calls", "total_ns", "share", "mean_ns", "failed")
    assert shown(result_of("api", trace_of(api=calls)), *fields) == table("""
        API calls
          function  calls  total µs  of call time %                 mean µs  result not 0
          malloc        2     40.00            80.0  ████████████▊    20.00             1
          launch        1     10.00            20.0  ███▎             10.00             -
    """)


def test_memcpy_gives_bytes_and_throughput_by_direction() -> None:
    copies = [
        {"kind": "h2d", "src_kind": "pageable", "dst_kind": "device", "bytes": 4 << 20, "start_ns": 0, "end_ns": 2 * MS,
         "asynchronous": False},
        {"kind": "h2d", "src_kind": "pageable", "dst_kind": "device", "bytes": 2 << 20, "start_ns": 0, "end_ns": 1 * MS,
         "asynchronous": True},
        {"kind": "d2d", "bytes": 1 << 20, "start_ns": 0, "end_ns": 1 * MS},
    ]  # fmt: skip
    fills = [{"bytes": 1 << 20, "memory_kind": "device", "start_ns": 0, "end_ns": 500 * US}]
    # h2d: 6 MiB in 3 ms = 2.10 GB/s; d2d: 1 MiB in 1 ms = 1.05 GB/s; fill: 1 MiB in 0.5 ms = 2.10 GB/s.
    fields = ("kind", "src", "dst", "calls", "bytes", "throughput", "mean_bytes", "total_ns", "asynchronous")
    assert shown(result_of("memcpy", trace_of(memcpy=copies, memset=fills)), *fields) == table("""
        Copies and fills
          kind  from      to      calls  moved MiB  throughput GB/s  mean size MiB  total ms  asynchronous %
          h2d   pageable  device      2       6.00             2.10           3.00      3.00            50.0
          d2d   -         -           1       1.00             1.05           1.00      1.00               -
          fill  -         device      1       1.00             2.10           1.00      0.50               -
    """)


def test_sync_names_the_call_and_the_operator_that_waited() -> None:
    trace = trace_of(
        sync=[
            {"kind": "stream", "start_ns": 0, "end_ns": 20 * US, "correlation_id": 7, "op_id": 3},
            {"kind": "stream", "start_ns": 50 * US, "end_ns": 60 * US, "correlation_id": 8, "op_id": 3},
        ],
        api=[{"name": "cudaStreamSynchronize", "correlation_id": i, "start_ns": 0, "end_ns": 100 * US} for i in (7, 8)],
        op=[{"op_id": 3, "name": "aten::item", "start_ns": 0, "end_ns": 100 * US}],
    )
    # Two waits of 20 and 10 us; the trace covers 100 us, so they are 30 % of the wall time.
    assert shown(result_of("sync", trace), "kind", "function", "op", "calls", "total_ns", "share") == table("""
        Waits
          kind    function               op          calls  total µs  of wall %
          stream  cudaStreamSynchronize  aten::item      2     30.00       30.0  ████▊
    """)


def test_uvm_adds_faults_and_says_what_to_do() -> None:
    events = [
        {"kind": "fault_gpu", "count": 30, "start_ns": 0, "end_ns": 2 * MS},
        {"kind": "migrate_h2d", "cause": "fault", "bytes": 64 << 10, "start_ns": 0, "end_ns": 10 * US},
        {"kind": "migrate_h2d", "cause": "fault", "bytes": 192 << 10, "start_ns": 0, "end_ns": 30 * US},
    ]
    # 256 KiB in 40 us are 6.55 GB/s, in pieces of 128 KiB.
    fields = ("kind", "cause", "calls", "count", "bytes", "throughput", "total_ns")
    assert shown(result_of("uvm", trace_of(uvm=events)), *fields) == table("""
        Unified memory
          kind         cause  records  faults or events  moved KiB  throughput GB/s  total ms
          fault_gpu    -            1                30          -                -      2.00
          migrate_h2d  fault        2                 2     256.00             6.55      0.04

        Findings
          ● medium kernels faulted 30 times on unified memory; 256.0 KiB moved in pieces of 128.0 KiB  2.00 ms
                   prefetch what a kernel reads before launching it, or advise where the memory should live
    """)


def test_ranges_tell_work_of_their_thread_from_that_of_their_process() -> None:
    trace = trace_of(
        range=[
            {"name": "step", "kind": "push_pop", "thread_id": 1, "start_ns": 0, "end_ns": 100 * US},
            {"name": "step", "kind": "push_pop", "thread_id": 1, "start_ns": 200 * US, "end_ns": 260 * US},
            {"name": "note", "kind": "mark", "thread_id": 1, "start_ns": 5 * US},
        ],
        kernel=[
            # Launched in the first step by its thread and by another thread; the first runs after the step's end.
            {"name": "k", "thread_id": 1, "queued_ns": 10 * US, "start_ns": 120 * US, "end_ns": 150 * US},
            {"name": "k", "thread_id": 2, "queued_ns": 20 * US, "start_ns": 150 * US, "end_ns": 160 * US},
            # Launched between the steps.
            {"name": "k", "thread_id": 1, "queued_ns": 150 * US, "start_ns": 210 * US, "end_ns": 250 * US},
        ],
    )
    fields = ("range", "calls", "total_ns", "device_ns", "process_ns", "launches")
    assert shown(result_of("ranges", trace), *fields) == table("""
        Ranges
          range  calls  total µs  device, own thread µs  device, all threads µs  launches
          step       2    160.00                  30.00                   40.00         1
          device time is that of all work launched while the range was open; nested ranges each count it
    """)


def test_graphs_add_the_work_of_one_launch() -> None:
    # Two launches (correlation 1, 2) of graph 5, each a kernel of 10 us and a copy that ends 5 us after it.
    kernels = [
        {"name": "k", "graph_id": 5, "graph_node_id": 1, "correlation_id": i, "start_ns": t, "end_ns": t + 10 * US}
        for i, t in ((1, 0), (2, 100 * US))
    ]
    copies = [
        {"graph_id": 5, "graph_node_id": 2, "correlation_id": i, "start_ns": t + 12 * US, "end_ns": t + 15 * US}
        for i, t in ((1, 0), (2, 100 * US))
    ]
    fields = ("graph", "calls", "nodes", "kernels", "copies", "device_ns", "mean_ns")
    assert shown(result_of("graphs", trace_of(kernel=kernels, memcpy=copies)), *fields) == table("""
        Graphs
          graph  launches  nodes  kernels  copies and fills  device µs  mean µs
              5         2      2        2                 2      26.00    15.00
          a run lasts from the start of its first node to the end of its last
    """)


def test_graphs_recorded_as_a_whole_have_no_known_nodes() -> None:
    launches = [
        {"name": "CUDA graph 5", "graph_id": 5, "correlation_id": i, "start_ns": t, "end_ns": t + 15 * US}
        for i, t in ((1, 0), (2, 100 * US))
    ]
    fields = ("graph", "calls", "nodes", "kernels", "copies", "device_ns", "mean_ns")
    assert shown(result_of("graphs", trace_of(kernel=launches)), *fields) == table("""
        Graphs
          graph  launches  nodes  kernels  copies and fills  device µs  mean µs
              5         2      -        -                 -      30.00    15.00
          a run lasts from the start of its first node to the end of its last
    """)


def test_events_are_in_the_order_of_time() -> None:
    trace = trace_of(
        kernel=[{"name": "late", "start_ns": 30 * US, "end_ns": 40 * US, "device_id": 0}],
        memcpy=[{"kind": "h2d", "start_ns": 10 * US, "end_ns": 20 * US, "bytes": 2048, "device_id": 0}],
        op=[{"name": "aten::mm", "start_ns": 10 * US, "end_ns": 50 * US, "thread_id": 9}],
        device=[{"device_id": 0, "name": "no event"}],
    )
    fields = ("start_ns", "duration_ns", "table", "name", "bytes", "device_id", "thread_id")
    assert shown(result_of("events", trace), *fields) == table("""
        Events
          at µs  duration µs  table   name      bytes KiB  device  thread
          10.00        40.00  op      aten::mm          -       -       9
          10.00        10.00  memcpy  h2d            2.00       0       -
          30.00        10.00  kernel  late              -       0       -
    """)
    only = result_of("events", trace, only="kernel, memcpy", rows=1).tables[0]
    assert only.frame["name"].to_list() == ["h2d"]
    assert only.note == "the first 1; --rows lists more"


def test_events_of_a_table_that_has_none() -> None:
    with pytest.raises(PastaError, match="events cannot list 'device'; use some of api, kernel"):
        result_of("events", trace_of(kernel=[{"name": "k", "start_ns": 0}]), only="device")


@pytest.mark.parametrize("tool", ["kernels", "ops", "api", "memcpy", "sync", "ranges", "gaps", "graphs", "memory",
                                  "workingset", "underused", "coalescing", "divergence", "hotness", "uvm", "events",
                                  "workload"])  # fmt: skip
def test_an_empty_trace_is_said_to_be_empty(tool: str) -> None:
    (finding,) = result_of(tool, trace_of()).findings
    assert finding.id == "no-data"
    assert finding.text.startswith(f"{tool} needs ")
    assert finding.remedy.startswith("record")
