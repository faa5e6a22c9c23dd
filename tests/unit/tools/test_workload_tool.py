"""The first screen, on four steps drawn by hand, and each finding on a trace that has just that fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden import MS, US, result_of, table

from pasta.report import Terminal, render
from pasta.tools import registry
from pasta.tools.result import Finding
from pasta.tools.testing import MemoryTrace, trace_of
from pasta.trace import Trace, TraceWriter


def steps(count: int = 4) -> MemoryTrace:
    """Steps of 100 us. The device is idle at 0..10, and from 70 on while the host waits, then does something else.

    range    0 ───────────────────────────────── 100
    op       mm 0..20, add 20..30
    kernel     gemm 10..50 (mm), add 50..60 (add)
    copy                           60..70
    sync                             70..80
    """
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("range", "op", "kernel", "memcpy", "sync")}
    for i in range(count):

        def at(start: int, end: int, i: int = i) -> dict[str, int]:
            return {"start_ns": (100 * i + start) * US, "end_ns": (100 * i + end) * US, "thread_id": 1}

        rows["range"].append({"name": f"step {i}", "kind": "push_pop", **at(0, 100)})
        rows["op"].append({"op_id": 2 * i + 1, "name": "aten::mm", "phase": "forward", **at(0, 20)})
        rows["op"].append({"op_id": 2 * i + 2, "name": "aten::add", "phase": "backward", **at(20, 30)})
        rows["kernel"].append({"name": "gemm", "op_id": 2 * i + 1, "device_id": 0, **at(10, 50)})
        rows["kernel"].append({"name": "add", "op_id": 2 * i + 2, "device_id": 0, **at(50, 60)})
        rows["memcpy"].append({"kind": "d2h", "bytes": 4096, "device_id": 0, **at(60, 70)})
        rows["sync"].append({"kind": "stream", **at(70, 80)})
    device = [{"device_id": 0, "name": "Device 9000"}]
    manifest = {"command": ["python", "-u", "train.py", "--fast"], "versions": {"torch": "2.11"}}
    return trace_of(manifest, device=device, **rows)


def test_the_first_screen() -> None:
    # A step: kernels 50 us, copy 10, idle 40: 10 waiting, 10 in mm, 20 elsewhere; 3 launches. The device runs dry from
    # 70 to 110, in the last step to its end at 100: (40 + 40 + 40 + 30) / 4 = 37.5 us a step.
    assert render(result_of("workload", steps()), "table", terminal=Terminal(width=110)) == table("""
        train.py · 1 × Device 9000 · torch 2.11 · 4 steps found (100.0 µs each, ±0.0 %)
        steps: ranges named step

        Where a step goes
          part                               time a step µs  share %
          kernels                                     50.00     50.0  ████████
          copies and fills                            10.00     10.0  █▋
          idle, host waiting for the device           10.00     10.0  █▋
          idle, host in operators                     10.00     10.0  █▋
          idle, host elsewhere                        20.00     20.0  ███▎

        Kernels
          kernel  calls a step  time a step µs  of wall %  op
          gemm             1.0           40.00       40.0  aten::mm
          add              1.0           10.00       10.0  aten::add

        Operators, without what they call
          op         phase     calls a step  device a step µs  host a step µs
          aten::mm   forward            1.0             40.00           20.00
          aten::add  backward           1.0             10.00           10.00

        Phases
          phase     calls a step  device a step µs  host a step µs
          forward            1.0             40.00           20.00
          backward           1.0             10.00           10.00

        Findings
          ▲ high   the device is idle for 40.0 µs a step, 50 % of it while the host does something that was     40.0 %
                   not recorded; 3 launches a step, 13.3 µs of idle time for each
                   look at what the program does between launches (input, Python): `--tool gaps`, ranges
          ▲ high   the host waits for the device once a step; the device then runs dry for 37.5 µs a step       37.5 %
                   read results back less often, or after the next work has been launched
    """)  # noqa: RUF001


def test_without_steps_the_whole_time_is_split() -> None:
    # Two steps are too few to claim any: 200 us, of which kernels take 100.
    result = result_of("workload", steps(2))
    assert result.header == ["train.py · 1 × Device 9000 · torch 2.11 · 200.0 µs"]  # noqa: RUF001
    assert result.table("where").title == "Where the time goes"
    assert result.table("where").frame.select("part", "time_ns").row(0) == ("kernels", 100 * US)


def test_the_parts_of_each_step_are_samples() -> None:
    samples = result_of("workload", steps()).table("where").samples
    assert samples is not None
    kernels = samples.frame.filter(part="kernels")["value"].to_list()
    assert kernels == [50 * US] * 4


def test_two_devices_are_averaged() -> None:
    kernels = [{"name": "k", "device_id": d, "start_ns": 0, "end_ns": ms * MS} for d, ms in ((0, 10), (1, 4))]
    where = result_of("workload", trace_of(kernel=kernels)).table("where")
    assert where.title == "Where the time goes (mean of 2 devices)"
    # Of 10 ms each, the devices work 10 and 4: 7 on average.
    assert where.frame.select("time_ns", "share").row(0) == (7 * MS, 70.0)


def work(us: int = 10_000) -> dict[str, Any]:
    return {"name": "k", "device_id": 0, "start_ns": 0, "end_ns": us * US}


FAULTS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "tiny-kernels",
        "100 % of the kernels run for less than 10.0 µs (1.00 µs on average): launching them takes longer",
        {"kernel": [{"name": "k", "device_id": 0, "start_ns": i * 5 * US, "end_ns": (i * 5 + 1) * US}
                    for i in range(40)]},
    ),
    (
        "pageable-copies",
        "4.00 MiB are copied between the device and pageable memory, at 4.2 GB/s",
        {"kernel": [work()], "memcpy": [{"kind": "h2d", "src_kind": "pageable", "bytes": 4 << 20, "device_id": 0,
                                         "start_ns": 0, "end_ns": 1 * MS}]},
    ),
    (
        "small-copies",
        "200 copies of less than 64.0 KiB (800.0 KiB in all)",
        {"kernel": [work()], "memcpy": [{"kind": "h2d", "bytes": 4096, "device_id": 0, "start_ns": i * 10 * US,
                                         "end_ns": (i * 10 + 2) * US} for i in range(200)]},
    ),
    (
        "compilation",
        "the program compiles in the time measured: 1 build, 1 launch that waited",
        {"kernel": [{**work(), "compiled": True}], "build": [{"start_ns": 0, "end_ns": 3 * MS, "source": "text"}]},
    ),
    (
        "failed-calls",
        "3 API calls did not return success: malloc returned 2 in 2 of them",
        {"kernel": [work()], "api": [{"name": name, "result": result, "start_ns": 0, "end_ns": 1} for name, result in
                                     (("malloc", 2), ("malloc", 2), ("free", 1), ("eventQuery", 600), ("launch", 0))]},
    ),
    (
        "never-freed",
        "12 objects of 1.00 MiB were made by grow and none was freed: 12.0 MiB",
        {"kernel": [work()], "alloc": [{"action": "alloc", "object_id": i, "bytes": 1 << 20, "start_ns": i,
                                        "kind": "device", "device_id": 0, "allocator": "grow"} for i in range(12)]},
    ),
    (
        "lost-data",
        "cupti lost 5 records of kernel: buffer full",
        {"kernel": [work()], "loss": [{"source": "cupti", "table": "kernel", "records": 5, "cause": "buffer full",
                                       "remedy": "raise --buffer-size", "start_ns": 0}]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("id", "text", "rows"), FAULTS, ids=[id for id, _, _ in FAULTS])
def test_a_fault_is_found(id: str, text: str, rows: dict[str, Any]) -> None:
    found: dict[str, Finding] = {finding.id: finding for finding in result_of("workload", trace_of(**rows)).findings}
    assert found[id].text == text
    assert found[id].remedy


def test_a_busy_device_has_no_findings() -> None:
    assert result_of("workload", trace_of(kernel=[work()])).findings == []


@pytest.mark.parametrize("tool", registry.BUILTIN)
def test_a_trace_on_disk_gives_what_it_gives_in_memory(tool: str, tmp_path: Path) -> None:
    memory = steps()
    with TraceWriter(tmp_path / "t.pasta") as writer:
        writer.manifest.update(memory.manifest)
        for name, frame in memory.frames.items():
            writer.append(name, frame)
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert render(result_of(tool, trace), "json") == render(result_of(tool, memory), "json")
