"""The `gaps` tool on a time line drawn by hand."""

from __future__ import annotations

from golden import US, result_of, shown, table

from pasta.tools.testing import MemoryTrace, trace_of


def timeline() -> MemoryTrace:
    """One device, 100 us from its first to its last work, idle for 40 + 20.

    device   |k1 0-20|           40 us           |k2 60-70|   20 us   |copy 90-100|
    host       op 15 ────── 50 (call 30-50)        wait 70 ── 85
    """
    return trace_of(
        kernel=[
            {"name": "k1", "device_id": 0, "start_ns": 0, "end_ns": 20 * US},
            {"name": "k2", "device_id": 0, "start_ns": 60 * US, "end_ns": 70 * US},
        ],
        memcpy=[{"kind": "d2h", "device_id": 0, "start_ns": 90 * US, "end_ns": 100 * US}],
        op=[
            {"op_id": 1, "name": "outer", "start_ns": 15 * US, "end_ns": 50 * US},
            {"op_id": 2, "parent_id": 1, "name": "inner", "start_ns": 22 * US, "end_ns": 28 * US},
        ],
        api=[{"name": "launch", "start_ns": 30 * US, "end_ns": 50 * US}],
        sync=[{"kind": "stream", "start_ns": 70 * US, "end_ns": 85 * US}],
    )


def test_gaps() -> None:
    # Gap 20..60: 20..30 in operators only, 30..50 in the call, 50..60 nothing. Gap 70..90: 15 us waiting, 5 nothing.
    # By name: outer covers 20..50 without inner's 6 us.
    assert shown(result_of("gaps", timeline())) == table("""
        Idle time by device
          device  first to last work µs  busy µs  idle µs  idle %              gaps  longest µs
          0                      100.00    40.00    60.00    60.0  █████████▋     2       40.00

        What the host did while a device was idle
          host                    idle µs  of idle %
          waiting for the device    15.00       25.0  ████
          in a device API call      20.00       33.3  █████▍
          in an operator            10.00       16.7  ██▋
          nothing recorded          15.00       25.0  ████

        Calls and operators during idle time
          what      name    idle µs  times
          operator  outer     24.00      1
          call      launch    20.00      1
          wait      stream    15.00      1
          operator  inner      6.00      1
          operators without those that they called; calls nest and threads run side by side, so rows may overlap

        Longest gaps
          device  at µs  duration µs  host (half the gap or more)  after  before
          0       20.00        40.00  launch                       k1     k2
          0       70.00        20.00  waiting for stream           k2     copy d2h
    """)


def test_a_stream_that_waits_keeps_no_host_busy() -> None:
    kernels = timeline().table("kernel").collect()
    waiting = trace_of(sync=[{"kind": "stream_event", "start_ns": 20 * US, "end_ns": 60 * US}]).table("sync").collect()
    host = result_of("gaps", MemoryTrace({"kernel": kernels, "sync": waiting})).table("host").frame
    assert dict(host.select("host", "idle_ns").rows())["nothing recorded"] == 40 * US


def test_processes_that_share_a_device_share_its_time() -> None:
    # Two processes keep one device (equal uuid) busy in turns: no gap, although each has one of its own.
    kernels = [
        {"pid": pid, "name": "k", "device_id": 0, "start_ns": start * US, "end_ns": (start + 10) * US}
        for pid, start in ((1, 0), (2, 10), (1, 20))
    ]
    devices = [{"pid": pid, "device_id": 0, "uuid": "GPU-1"} for pid in (1, 2)]
    shared = result_of("gaps", trace_of(kernel=kernels, device=devices)).table("devices").frame
    assert shared.select("busy_ns", "idle_ns", "gaps").rows() == [(30 * US, 0, 0)]
    apart = result_of("gaps", trace_of(kernel=kernels)).table("devices").frame
    assert apart.select("device", "busy_ns", "idle_ns").rows() == [
        ("pid 1:0", 20 * US, 10 * US), ("pid 2:0", 10 * US, 0)
    ]  # fmt: skip
