"""Chrome traces of any program become ranges; expected values are what each event of the format means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kineto_maker import Raw, dumps, rows

from pasta.errors import PastaError
from pasta.importers import import_files
from pasta.trace import Trace


def imported(folder: Path, events: list[dict[str, Any]], text: str | None = None) -> Trace:
    (folder / "trace.json").write_text(text or dumps({"traceEvents": events}))
    import_files([folder / "trace.json"], folder / "out.pasta")
    return Trace.open(folder / "out.pasta")


def event(phase: str, name: str, at: float | str, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "cat": "app", "ts": at, "pid": 1, "tid": 2} | more


def times(trace: Trace) -> dict[str, tuple[int, int | None, str]]:
    return {row["name"]: (row["start_ns"], row["end_ns"], row["kind"]) for row in rows(trace, "range")}


def test_complete_nested_asynchronous_and_instant_events_are_ranges(tmp_path: Path) -> None:
    events = [
        event("X", "complete", 10, dur=5.5),
        *(event("B", "outer", 20), event("B", "inner", 21), event("E", "", 22), event("E", "", 30)),
        *(event("b", "request", 40, id="0x1"), event("b", "request 2", 41, id="0x2")),
        *(event("e", "request", 50, id="0x1"), event("e", "request 2", 45, id="0x2")),
        event("i", "mark", 60, s="g"),
    ]
    with imported(tmp_path, events) as trace:
        assert times(trace) == {
            "complete": (0, 5500, "push_pop"),
            "outer": (10_000, 20_000, "push_pop"),
            "inner": (11_000, 12_000, "push_pop"),
            "request": (30_000, 40_000, "start_end"),
            "request 2": (31_000, 35_000, "start_end"),
            "mark": (50_000, 50_000, "mark"),
        }
        numbers = {row["name"]: row["range_id"] for row in rows(trace, "range")}
        parents = {row["name"]: row["parent_id"] for row in rows(trace, "range")}
        assert parents == dict.fromkeys(numbers) | {"inner": numbers["outer"]}


def test_slices_without_an_end_or_a_beginning_are_counted(tmp_path: Path) -> None:
    events = [event("B", "open", 10), event("E", "", 5, tid=99), event("X", "x", 12, dur=1)]
    with imported(tmp_path, events) as trace:
        assert times(trace) == {"open": (0, None, "push_pop"), "x": (2000, 3000, "push_pop")}
        assert trace.manifest["import"]["unmatched"] == {
            "ends of slices that were not begun": 1,
            "slices that were begun and not ended": 1,
        }


def test_processes_and_threads_may_be_text_and_have_names(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": "gpu", "args": {"name": "GPU process"}},
        {"ph": "M", "name": "thread_name", "pid": "gpu", "tid": "queue 1", "args": {"name": "copies"}},
        event("X", "work", 1, dur=1, pid="gpu", tid="queue 1"),
    ]
    with imported(tmp_path, events) as trace:
        (work,) = rows(trace, "range", "pid", "thread_id")
        assert rows(trace, "process", "pid", "command") == [{"pid": work["pid"], "command": "GPU process"}]
        assert rows(trace, "thread", "pid", "thread_id", "name") == [{**work, "name": "copies"}]


def test_times_may_be_text_and_exact_at_the_scale_of_the_epoch(tmp_path: Path) -> None:
    events = [
        event("X", "a", Raw("1767189312000001.001"), dur=Raw("0.002")),
        event("X", "b", "1767189312000002.004", dur="7"),
        event("B", "c", Raw("1767189312000003.007")),
        event("E", "c", Raw("1767189312000003.010")),
    ]
    with imported(tmp_path, events) as trace:
        assert {name: (start, end) for name, (start, end, _) in times(trace).items()} == {
            **{"a": (0, 2), "b": (1003, 8003), "c": (2006, 2009)},
        }


def test_what_has_no_place_is_stated(tmp_path: Path) -> None:
    events = [
        event("X", "a", 1, dur=1, args={"bytes": 4}),
        event("C", "counter", 2, args={"value": 1}),
        event("s", "flow", 3, id=1),
    ]
    with imported(tmp_path, events) as trace:
        assert trace.manifest["import"]["unplaced"] == {
            "arguments of slices": 1,
            "events of phase 'C'": 1,
            "events of phase 's'": 1,
        }


def test_a_list_without_its_closing_bracket_is_whole(tmp_path: Path) -> None:
    # The format allows it, so that a program can append until it dies.
    text = json.dumps([event("X", "a", 1, dur=1), event("X", "b", 2, dur=1)])[:-1] + ",\n"
    with imported(tmp_path, [], text) as trace:
        assert len(rows(trace, "range")) == 2
        assert "loss" not in trace.present


def test_a_trace_without_slices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PastaError, match="nothing to import"):
        imported(tmp_path, [event("C", "counter", 2, args={"value": 1})])
