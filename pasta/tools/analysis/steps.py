"""Find the steps of a program that repeats itself: from its ranges, its optimizer or its sequence of kernels.

Steps are only claimed on evidence: ranges named so, optimizer runs after backward passes, or a sequence of kernels
that recurs unchanged. What is not found is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from pasta.tools.analysis.activity import windows
from pasta.tools.analysis.intervals import Intervals
from pasta.tools.analysis.optree import OpTree
from pasta.tools.base import TraceView

_FEWEST = 3
_STEP_NAME = r"(?i)(^|[^a-z])(profilerstep|train_?step|step|iteration|iter|batch)([^a-z]|$)"
#: Parts of a step, and functions whose path or argument happens to say so.
_NO_STEP_NAME = r"(?i)optim|sched|zero_grad|\.py\(|/|::"
#: Ranges: how much of their span they must cover, and how many of the launches (or operators) must be in the span.
_COVERED = 0.5
_CONTAINED = 0.5

#: Kernels: how much of the span must be the same sequence, and how much of all launches the span must be.
_SAME = 0.9
_SPANNED = 0.5
_SHORTEST_SEQUENCE = 2
_MOST_ANCHORS = 64

_MOST_SAMPLED = 500

#: Leading steps that take this many times the median of the others, at most a quarter of all, are warm-up.
_WARM_UP = 2.0
_MOST_WARM_UP = 4


@dataclass(frozen=True)
class Steps:
    """Steps of each process, disjoint: ``frame`` has ``pid``, ``start_ns``, ``end_ns``; ``how`` they were found.

    ``on_host``: their times are those of the host, which runs ahead of the device; else they are times of kernels.
    ``warm_up`` has the leading steps that took far longer; they are not among the steps.
    """

    frame: pl.DataFrame
    how: str
    on_host: bool
    warm_up: pl.DataFrame

    @property
    def noun(self) -> str:
        """What to call one: a sequence of kernels repeats, but it may be a layer as well as a step of training."""
        return "step" if self.on_host else "repeat"

    def __len__(self) -> int:
        return self.frame.height

    @cached_property
    def durations(self) -> npt.NDArray[np.int64]:
        """Length of each step in ns."""
        return (self.frame["end_ns"] - self.frame["start_ns"]).to_numpy()

    def of(self, *pids: int) -> pl.DataFrame:
        """Return the steps of these processes."""
        return self.frame.filter(pl.col("pid").is_in(list(pids)))

    def number(self, events: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Return for each row of ``events`` (``pid``, ``start_ns``) the step in which it begins; -1 outside of all."""
        found = np.full(events.height, -1, dtype=np.int64)
        pids, times = events["pid"].to_numpy(), events["start_ns"].to_numpy()
        for (pid,), steps in self.frame.with_row_index("row").partition_by("pid", as_dict=True).items():
            own = np.flatnonzero(pids == pid)
            index = np.searchsorted(steps["start_ns"].to_numpy(), times[own], side="right") - 1
            inside = (index >= 0) & (times[own] < steps["end_ns"].to_numpy()[index])
            found[own[inside]] = steps["row"].to_numpy()[index[inside]]
        return found

    def contain(self, events: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Return for each row of ``events`` whether it begins in a step of its process."""
        return self.number(events) >= 0

    def samples(self, events: pl.DataFrame, keys: Sequence[str], most: int = 50) -> pl.DataFrame:
        """Add up ``value`` for each step and key (the ``most`` costly): what a comparison of traces tests.

        ``events`` has the keys, ``value`` and ``step`` (from `number`). A step without events of a key counts as 0.
        """
        costly = events.lazy().group_by(keys).agg(pl.col("value").sum()).sort("value", descending=True).head(most)
        steps = pl.LazyFrame({"step": np.arange(min(len(self), _MOST_SAMPLED))})
        sums = events.lazy().filter(pl.col("step") >= 0).group_by(*keys, "step").agg(pl.col("value").sum())
        every = costly.select(keys).join(steps, how="cross")
        joined = every.join(sums, on=[*keys, "step"], how="left", nulls_equal=True)
        return joined.select(*keys, pl.col("value").fill_null(0)).collect()


def find_steps(trace: TraceView, tree: OpTree | None) -> Steps | None:
    """Return the steps of ``trace``; None when no evidence for any is found. ``tree`` holds its operators."""
    methods: list[Callable[[], Steps | None]] = [
        lambda: _from_ranges(trace) if "range" in trace.present else None,
        lambda: _from_optimizer(tree) if tree is not None else None,
        lambda: _from_kernels(trace) if "kernel" in trace.present else None,
    ]
    found = next((steps for method in methods if (steps := method()) is not None), None)
    return None if found is None else _whole(found, windows(trace))


def _whole(steps: Steps, covered: Intervals) -> Steps | None:
    """Drop the steps that a filter of time cuts: their parts would count as steps."""
    inside = covered.covered(steps.frame["start_ns"].to_numpy(), steps.frame["end_ns"].to_numpy()) == steps.durations
    frame = steps.frame.filter(pl.Series(inside))
    return replace(steps, frame=frame) if frame.height >= _FEWEST else None


def _from_ranges(trace: TraceView) -> Steps | None:
    """Take ranges whose name says step, iteration or batch, numbers apart, on the thread where they take longest."""
    ranges = (
        trace.table("range")
        .filter(
            pl.col("kind").ne_missing("mark"),
            pl.col("name").str.contains(_STEP_NAME),
            ~pl.col("name").str.contains(_NO_STEP_NAME),
        )
        .select("pid", "thread_id", "start_ns", "end_ns", pl.col("name").str.replace_all(r"\d+", "").alias("stem"))
        .drop_nulls(["start_ns", "end_ns"])
        .collect()
    )
    groups = [
        group.sort("start_ns")
        for group in ranges.partition_by("pid", "thread_id", "stem", maintain_order=True)
        if group.height >= _FEWEST
    ]
    plausible = sorted((group for group in groups if _is_loop(trace, group)), key=_covered)
    if not plausible:
        return None
    stem = plausible[-1]["stem"][0]
    by_process = {group["pid"][0]: group for group in plausible if group["stem"][0] == stem}
    return _steps(pl.concat(by_process.values()), f"ranges named {stem.strip()}")


def _covered(ranges: pl.DataFrame) -> int:
    return int((ranges["end_ns"] - ranges["start_ns"]).sum())


def _is_loop(trace: TraceView, ranges: pl.DataFrame) -> bool:
    """Whether ranges follow each other closely and most of what the process launches lies between first and last."""
    start, end = int(ranges["start_ns"][0]), int(ranges["end_ns"][-1])
    if (ranges["start_ns"][1:] < ranges["end_ns"][:-1]).any() or _covered(ranges) < _COVERED * (end - start):
        return False
    work = trace.table("kernel" if "kernel" in trace.present else "op").filter(pl.col("pid") == ranges["pid"][0])
    inside = pl.col("start_ns").is_between(start, end)
    share = work.select(inside.mean()).collect().item()
    return share is None or share >= _CONTAINED


def _from_optimizer(tree: OpTree) -> Steps | None:
    """A step ends where an optimizer's run ends that followed a backward pass; it begins where the last one ended."""
    top = tree.frame.filter(pl.Series(tree.parent < 0)).with_columns(pl.col("phase").cast(pl.String))
    parts = [
        steps
        for process in top.sort("start_ns").partition_by("pid", maintain_order=True)
        if (steps := _optimizer_steps(process)) is not None
    ]
    return _steps(pl.concat(parts), "optimizer operators") if parts else None


def _optimizer_steps(ops: pl.DataFrame) -> pl.DataFrame | None:
    phase = ops["phase"].to_numpy()
    optimizer = phase == "optimizer"
    if not optimizer.any() or not (phase == "backward").any():
        return None
    # Backward operators so far, at each optimizer operator: a new value begins the optimizer's run of a new step.
    backward = np.cumsum(phase == "backward")[optimizer]
    ends = np.maximum.accumulate(ops["end_ns"].to_numpy()[optimizer])
    last = np.flatnonzero(np.append(backward[1:] != backward[:-1], True))
    closes = ends[last[backward[last] > 0]]
    if closes.size < _FEWEST:
        return None
    starts = np.concatenate((ops["start_ns"].to_numpy()[:1], closes[:-1]))
    return pl.DataFrame({"pid": [ops["pid"][0]] * closes.size, "start_ns": starts, "end_ns": closes})


def _from_kernels(trace: TraceView) -> Steps | None:
    """Find in each process a kernel that recurs with the same sequence of kernels after it."""
    kernels = (
        trace.table("kernel")
        .select(
            "pid", pl.coalesce("launch_id", "start_ns").alias("order"), "start_ns", pl.col("name").cast(pl.Categorical)
        )
        .drop_nulls(["start_ns", "name"])
        .sort("pid", "order", maintain_order=True)
        .collect()
    )
    found = []
    lengths = set()
    for process in kernels.partition_by("pid", maintain_order=True):
        repeats = repeated_sequence(process["name"].to_physical().to_numpy())
        if repeats is None:
            continue
        first, last = repeats
        starts = process["start_ns"].to_numpy()
        frame = pl.DataFrame({"start_ns": starts[first], "end_ns": starts[last]})
        found.append(frame.with_columns(pid=process["pid"][0]))
        lengths.add(int(last[0] - first[0]))
    if not found:
        return None
    how = f"a sequence of {' or '.join(map(str, sorted(lengths)))} kernels that repeats (a step, or a part of one)"
    return _steps(pl.concat(found), how, on_host=False)


def repeated_sequence(names: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Find a sequence that makes up most of ``names`` by repeating; return where each repeat begins and ends.

    Every rare name is tried as the beginning of the sequence, the rarest first, so that the longest sequence is
    found and not, say, the layers within it. The pieces between its occurrences are compared by their hashes.
    """
    values, counts = np.unique(names, return_counts=True)
    candidates = np.argsort(counts, kind="stable")
    candidates = candidates[counts[candidates] > _FEWEST][:_MOST_ANCHORS]
    prefix, inverse = _prefix_hashes(names)
    for candidate in candidates:
        at = np.flatnonzero(names == values[candidate])
        first, last = at[:-1], at[1:]
        pieces = (prefix[last] - prefix[first]) * inverse[first]
        _, which, repeats = np.unique(pieces, return_inverse=True, return_counts=True)
        same = which == repeats.argmax()
        first, last = first[same], last[same]
        length, spanned = int(last[0] - first[0]), int(at[-1] - at[0])
        enough = first.size >= _FEWEST and length >= _SHORTEST_SEQUENCE
        if enough and first.size * length >= _SAME * spanned and spanned >= _SPANNED * names.size:
            return first, last
    return None


def _prefix_hashes(names: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return sums of name x base^position before each position, and base^-position, all modulo 2^64.

    The difference of two sums times the inverse power is a hash of the names between, wherever they stand.
    """
    base = np.uint64(6364136223846793005)  # odd, so that it has an inverse
    inverse = np.uint64(pow(int(base), -1, 2**64))
    powers = np.cumprod(np.concatenate((np.ones(1, np.uint64), np.full(names.size, base))), dtype=np.uint64)
    inverses = np.cumprod(np.concatenate((np.ones(1, np.uint64), np.full(names.size, inverse))), dtype=np.uint64)
    # Names are small numbers; spread them over 64 bits before they are summed.
    spread = (names.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    spread ^= spread >> np.uint64(29)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(spread * powers[:-1], dtype=np.uint64)))
    return sums, inverses


def _steps(frame: pl.DataFrame, how: str, on_host: bool = True) -> Steps | None:
    """Order steps and set the warm-up of each process apart; None when too few are left."""
    real = frame.filter(pl.col("end_ns") > pl.col("start_ns"))
    ordered = real.select(pl.col("pid").cast(pl.Int32), "start_ns", "end_ns").sort("pid", "start_ns")
    kept, warm_up = [ordered.clear()], [ordered.clear()]
    for process in ordered.partition_by("pid", maintain_order=True):
        leading = _warm_up((process["end_ns"] - process["start_ns"]).to_numpy())
        warm_up.append(process[:leading])
        kept.append(process[leading:])
    steps = pl.concat(kept)
    return Steps(steps, how, on_host, pl.concat(warm_up)) if steps.height >= _FEWEST else None


def _warm_up(lengths: npt.NDArray[np.int64]) -> int:
    """Return how many leading steps took far longer than the steps after them."""
    most = lengths.size // _MOST_WARM_UP
    typical = np.median(lengths[most:])
    slow = lengths[:most] > _WARM_UP * typical
    return int(np.flatnonzero(slow)[-1]) + 1 if slow.any() else 0
