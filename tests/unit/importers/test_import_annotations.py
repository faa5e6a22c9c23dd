"""Ranges of NVTX and roctx: which are operators, and which operator runs at a moment."""

from __future__ import annotations

from itertools import count

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.importers.annotations import Annotations, operator
from pasta.importers.base import Report, Sink


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("aten::mm, seq = 4, op_id = 2, sizes = [[8, 16]], input_op_ids = [(1, 0)]", ("aten::mm", 4, "[[8, 16]]")),
        ("aten::empty, op_id = 3", ("aten::empty", None, None)),
        ("AddmmBackward0, seq = 12", ("AddmmBackward0", 12, None)),  # before torch 1.10
        ("aten::detach", ("aten::detach", None, None)),
        ("nccl:all_to_all, op_id = 993824", ("nccl:all_to_all", None, None)),
        ("epoch 3, batch 7, op_id = 5", ("epoch 3, batch 7", None, None)),
        ("epoch 3, batch 7", None),
        ("forward, seq = many", None),
        (", seq = 4", None),
        ("step", None),
    ],
)
def test_an_operator_is_known_by_the_numbers_in_its_text(
    text: str, found: tuple[str, int | None, str | None] | None
) -> None:
    assert operator(text) == found


class Nowhere:
    """A writer that keeps nothing."""

    def append(self, table: str, frame: pl.DataFrame) -> None:
        pass


@given(
    intervals=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 30), st.integers(1, 30)), max_size=12),
    moments=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 70)), max_size=20),
)
def test_the_operator_at_a_moment_is_the_last_that_began_and_has_not_ended(
    intervals: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    annotations = Annotations(Sink(Nowhere(), Report()), count(1), "nvtx")
    # Ends that do not nest are made to: each interval ends with the one around it at the latest.
    nested: list[tuple[int, int, int]] = []
    for thread, start, duration in sorted(intervals, key=lambda interval: (interval[0], interval[1], -interval[2])):
        around = [end for owner, begin, end in nested if owner == thread and begin <= start < end]
        nested.append((thread, start, min([start + duration, *around])))
    for thread, start, end in nested:
        annotations.add(thread, 0, thread, start, end, "push_pop", "aten::mm")
    for thread, moment in moments:
        running = [n for n, (owner, start, end) in enumerate(nested, 1) if owner == thread and start <= moment < end]
        assert annotations.operator_at(thread, moment) == (running[-1] if running else None)
