"""The `ops` tool on a small call tree."""

from __future__ import annotations

from golden import US, result_of, shown, table

from pasta.tools.testing import MemoryTrace, trace_of


def tree() -> MemoryTrace:
    """Two calls of `linear`, each with an `mm` inside; the second `mm` calls itself once.

    linear 0..100 ── mm 10..60                      kernel 40 us from mm, copy 5 us from linear
    linear 200..300 ── mm 210..250 ── mm 220..240   kernel 30 us from the inner mm, 7 us outside of all
    """
    ops = [
        (1, None, "linear", 0, 100), (2, 1, "mm", 10, 60),
        (3, None, "linear", 200, 300), (4, 3, "mm", 210, 250), (5, 4, "mm", 220, 240),
    ]  # fmt: skip
    work = [(2, 40), (5, 30), (None, 7)]
    return trace_of(
        op=[
            {"op_id": id, "parent_id": parent, "name": name, "phase": "forward", "module": f"layers.{id}",
             "start_ns": start * US, "end_ns": end * US}
            for id, parent, name, start, end in ops
        ],
        kernel=[{"name": "k", "op_id": op, "start_ns": 0, "end_ns": us * US} for op, us in work],
        memcpy=[{"kind": "h2d", "op_id": 1, "start_ns": 0, "end_ns": 5 * US}],
    )  # fmt: skip


def test_self_and_inclusive_times() -> None:
    # linear: host 200 in all, its own 50 + 60; device: its own copy 5, and 40 + 30 of what it called.
    # mm: host 50 + 40 (the inner mm is part of its caller), its own 50 + 20 + 20; device 40 + 30, all its own.
    assert shown(result_of("ops", tree())) == table("""
        Operators
          op      phase    calls  device self µs  of device %                   device total µs  host self µs  host total µs  launches
          mm      forward      3           70.00         93.3  ██████████████▉            70.00         90.00          90.00         2
          linear  forward      2            5.00          6.7  █▏                         75.00        110.00         200.00         1
          8.5 % of the device time was launched outside of any recorded operator
    """)  # noqa: E501


def test_phases() -> None:
    fields = ("phase", "calls", "device_self_ns", "host_self_ns", "host_ns")
    # Of the whole tree only the two calls of linear have no caller in the same phase.
    assert shown(result_of("ops", tree(), by="phase"), *fields).startswith(
        table("""
        Phases
          phase    calls  device self µs  host self µs  host total µs
          forward      5           75.00        200.00         200.00
    """)
    )


def test_modules() -> None:
    frame = result_of("ops", tree(), by="module").tables[0].frame
    assert dict(frame.select("module", "device_self_ns").rows()) == {
        "layers.1": 5 * US, "layers.2": 40 * US, "layers.3": 0, "layers.4": 0, "layers.5": 30 * US,
    }  # fmt: skip


def test_operators_without_device_work() -> None:
    trace = MemoryTrace({"op": tree().table("op").collect()})
    row = result_of("ops", trace).tables[0].frame.row(0, named=True)
    assert (row["op"], row["host_self_ns"], row["device_self_ns"], row["device_share"]) == ("linear", 110 * US, 0, None)
