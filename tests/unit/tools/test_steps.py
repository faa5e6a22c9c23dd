"""Steps are found where there are some, and not claimed where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.tools.analysis.optree import op_tree
from pasta.tools.analysis.steps import Steps, find_steps, repeated_sequence
from pasta.tools.filters import FilteredTrace, Filters
from pasta.tools.testing import MemoryTrace, trace_of


def steps_of(trace: MemoryTrace) -> Steps | None:
    return find_steps(trace, op_tree(trace) if "op" in trace.present else None)


def ranges(*times: tuple[str, int, int]) -> MemoryTrace:
    kernels = [{"name": f"k{i}", "start_ns": start, "end_ns": end} for i, (_, start, end) in enumerate(times)]
    return trace_of(
        range=[{"name": name, "kind": "push_pop", "thread_id": 1, "start_ns": s, "end_ns": e} for name, s, e in times],
        kernel=kernels,
    )


@pytest.mark.parametrize("name", ["ProfilerStep#{}", "step {}", "iteration{}", "train_step", "Iter {} of 9"])
def test_numbered_ranges_are_steps(name: str) -> None:
    steps = steps_of(ranges(*((name.format(i), 10 * i, 10 * i + 9) for i in range(5))))
    assert steps is not None
    assert steps.frame.select("start_ns", "end_ns").rows() == [(10 * i, 10 * i + 9) for i in range(5)]


@pytest.mark.parametrize(
    "name", ["Optimizer.step#Adam.step", "zero_grad step", "footstep", "a/batch.py(3): run", "ns::batch", "epoch"]
)
def test_other_names_are_no_steps(name: str) -> None:
    assert steps_of(ranges(*((name, 10 * i, 10 * i + 9) for i in range(5)))) is None


def test_ranges_that_cover_little_of_the_work_are_no_steps() -> None:
    # Three short ranges among 30 launches.
    few = ranges(*((f"step {i}", i, i + 1) for i in range(3)))
    kernels = [{"name": f"k{i}", "start_ns": i, "end_ns": i + 1} for i in range(30)]
    assert steps_of(MemoryTrace({**few.frames, **trace_of(kernel=kernels).frames})) is None


def test_ranges_within_each_other_are_no_steps() -> None:
    assert steps_of(ranges(("step", 0, 30), ("step", 5, 20), ("step", 6, 10))) is None


def test_slow_first_steps_are_warm_up() -> None:
    times = [("step", 0, 100), *(("step", 100 + 10 * i, 109 + 10 * i) for i in range(4))]
    steps = steps_of(ranges(*times))
    assert steps is not None
    assert (len(steps), steps.warm_up.height, steps.durations.max()) == (4, 1, 9)


def test_a_step_ends_with_its_optimizer() -> None:
    # forward 0..3, backward 3..6, optimizer 6..8 in two operators, metrics 8..9; again every 10.
    ops = [
        {"op_id": 5 * i + j, "name": name, "phase": phase, "start_ns": 10 * i + start, "end_ns": 10 * i + end}
        for i in range(4)
        for j, (name, phase, start, end) in enumerate(
            [("f", "forward", 0, 3), ("b", "backward", 3, 6), ("o", "optimizer", 6, 7), ("o", "optimizer", 7, 8),
             ("m", "forward", 8, 9)]
        )
    ]  # fmt: skip
    steps = steps_of(trace_of(op=ops))
    assert steps is not None
    assert steps.how == "optimizer operators"
    assert steps.frame.select("start_ns", "end_ns").rows() == [(0, 8), (8, 18), (18, 28), (28, 38)]


def test_inference_without_repeats_has_no_steps() -> None:
    ops = [{"op_id": i, "name": f"op{i}", "phase": "forward", "start_ns": i, "end_ns": i + 1} for i in range(9)]
    assert steps_of(trace_of(op=ops)) is None


def test_a_sequence_of_kernels_that_repeats() -> None:
    # Two kernels before the loop; five repeats of a, b, c, 10 ns each.
    names = ["init", "init2", *"abc" * 5]
    kernels = [{"name": n, "launch_id": i, "start_ns": 10 * i, "end_ns": 10 * i + 5} for i, n in enumerate(names)]
    steps = steps_of(trace_of(kernel=kernels))
    assert steps is not None
    assert steps.noun == "repeat"
    # A repeat ends where the next begins, so the last one is not known to be whole.
    assert steps.frame["start_ns"].to_list() == [20, 50, 80, 110]
    assert steps.durations.tolist() == [30] * 4


def test_the_longest_sequence_wins() -> None:
    # Each step has the layer a, b three times, and a head h: 7 kernels, not 2.
    first, last = repeated_sequence(np.array([ord(c) for c in "abababh" * 6])) or (None, None)
    assert first is not None
    assert set((last - first).tolist()) == {7}


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.integers(4, 8))
def test_any_repeated_sequence_is_found(sequence: list[int], repeats: int) -> None:
    found = repeated_sequence(np.array(sequence * repeats))
    period = next(p for p in range(1, len(sequence) + 1) if sequence == (sequence * 2)[p : p + len(sequence)])
    if period == 1:
        assert found is None  # one kernel again and again is no sequence
    elif found is not None:
        first, last = found
        pieces = {tuple((sequence * repeats)[a:b]) for a, b in zip(first, last, strict=True)}
        assert len(pieces) == 1


def test_random_kernels_repeat_nothing() -> None:
    assert repeated_sequence(np.random.default_rng(1).integers(0, 20, 5_000)) is None


def test_events_are_numbered_by_the_step_of_their_process() -> None:
    trace = ranges(("step", 0, 10), ("step", 10, 20), ("step", 20, 30))
    steps = steps_of(trace)
    assert steps is not None
    events = (
        trace_of(api=[{"pid": p, "start_ns": t} for p, t in ((1, 0), (1, 19), (1, 30), (2, 5))]).table("api").collect()
    )
    assert steps.number(events).tolist() == [0, 1, -1, -1]


def test_a_step_that_a_filter_cuts_is_none() -> None:
    trace = ranges(*(("step", 10 * i, 10 * i + 10) for i in range(6)))
    steps = find_steps(FilteredTrace(trace, Filters(time=(5, 45))), None)
    assert steps is not None
    assert steps.frame["start_ns"].to_list() == [10, 20, 30]
