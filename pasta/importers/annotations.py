"""Ranges that a program wrote (NVTX, roctx), told apart: operators of PyTorch's ``emit_nvtx``, and all others.

``emit_nvtx`` pushes one range an operator, whose text is its only payload (torch/csrc/profiler/util.cpp)::

    aten::mm, seq = 46174, op_id = 993406, sizes = [[8, 16], [16, 4]], input_op_ids = [(12, 0), (13, 0)]

``seq`` is there when autograd records the operator, ``op_id`` since torch 1.10, ``sizes`` on request. On AMD the same
text arrives through roctx. Operators are numbered anew: ids in the text repeat when a program is profiled twice.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from pasta.importers.base import Sink
from pasta.importers.open_intervals import NEVER, OpenIntervals

_NUMBER = re.compile(r"\d{1,18}")
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|\w*Backward\d*$")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#")


class Operator(NamedTuple):
    """What the text of an ``emit_nvtx`` range says."""

    name: str
    sequence: int | None
    sizes: str | None


def operator(text: str) -> Operator | None:
    """Return what ``text`` says when ``emit_nvtx`` wrote it, else None."""
    rest, _, _ = text.partition(", input_op_ids = ")
    rest, _, sizes = rest.partition(", sizes = ")
    rest, _, op_id = rest.partition(", op_id = ")
    name, _, sequence = rest.partition(", seq = ")
    numbered = _NUMBER.fullmatch(sequence) or _NUMBER.fullmatch(op_id)
    if not name or not (numbered or name.startswith("aten::")):
        return None
    return Operator(name, int(sequence) if _NUMBER.fullmatch(sequence) else None, sizes or None)


def phase_of(op: Operator, outer: str | None) -> str | None:
    """Return the phase of training of an operator inside one of phase ``outer``; None where nothing tells it."""
    if outer in ("backward", "optimizer"):
        return outer
    if _BACKWARD.match(op.name):
        return "backward"
    if _OPTIMIZER.match(op.name):
        return "optimizer"
    return "forward" if op.sequence is not None else outer


class Annotations:
    """Makes rows of ``op`` and ``range``, numbered by ``numbers``, and knows which operator runs when.

    Annotations must come ordered by (thread, start, -end); ``thread`` is any key that is unique in the source.
    """

    def __init__(self, sink: Sink, numbers: Iterator[int], source: str) -> None:
        self._numbers = numbers
        self._source = source
        self._ops = sink.table(
            "op", "pid", "start_ns", "end_ns", "thread_id", "op_id", "parent_id", "name", "phase", "sequence", "shapes"
        )
        self._ranges = sink.table(
            "range",
            *("pid", "start_ns", "end_ns", "thread_id", "range_id", "parent_id"),
            *("name", "domain", "category", "kind", "source"),
        )
        self._open_ops = OpenIntervals()
        self._open_ranges = OpenIntervals()
        self._phases: dict[int, str | None] = {}
        self._running: dict[Hashable, _Operators] = {}

    def add(
        self,
        thread: Hashable,
        pid: int,
        thread_id: int | None,
        start: int,
        end: int | None,
        kind: str,
        text: str | None,
        domain: str | None = None,
        category: str | None = None,
        source: str | None = None,
    ) -> None:
        """Add one annotation of a kind of ``range``; only a pushed range of the default domain can be an operator."""
        number = next(self._numbers)
        nested = kind == "push_pop"
        op = operator(text) if nested and text and domain is None else None
        if op is None:
            outer = self._open_ranges.push(thread, start, end, number) if nested else None
            self._ranges.add(
                *(pid, start, start if kind == "mark" else end, thread_id, number, outer),
                *(text, domain, category, kind, source or self._source),
            )
            return
        parent = self._open_ops.push(thread, start, end, number)
        if parent is None:
            self._phases.clear()
        phase = self._phases[number] = phase_of(op, None if parent is None else self._phases.get(parent))
        self._ops.add(pid, start, end, thread_id, number, parent, op.name, phase, op.sequence, op.sizes)
        running = self._running.get(thread)
        if running is None:
            running = self._running[thread] = _Operators()
        running.append(start, end, number, parent)

    def operator_at(self, thread: Hashable, at: int) -> int | None:
        """Return the number of the innermost operator that runs on ``thread`` at the time ``at``, or None."""
        operators = self._running.get(thread)
        return None if operators is None else operators.at(at)


class _Operators:
    """The operators of one thread, 32 bytes each."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._ends = array("q")
        self._numbers = array("q")
        self._parents = array("q")

    def append(self, start: int, end: int | None, number: int, parent: int | None) -> None:
        """Add an operator: in order of start, a parent before what it encloses."""
        index = -1
        if parent is not None:
            index = len(self._numbers) - 1
            while self._numbers[index] != parent:
                index = self._parents[index]
        self._starts.append(start)
        self._ends.append(NEVER if end is None else end)
        self._numbers.append(number)
        self._parents.append(index)

    def at(self, moment: int) -> int | None:
        """Return the number of the innermost operator around ``moment``."""
        index = bisect_right(self._starts, moment) - 1
        while index >= 0 and self._ends[index] <= moment:
            index = self._parents[index]
        return self._numbers[index] if index >= 0 else None
