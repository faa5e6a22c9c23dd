"""Operators by time: which encloses which, which ran when a call was made or a tensor allocated, phase and module.

The operator that encloses a call on its thread is what ``External id`` names too in the versions that link by it
(2021, and 2024 to now); in between, runtime calls and device work carried their own correlation id under that name,
and taking it for an operator's would join at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from pasta.importers.nesting import Flags, Ints, enclosing, nearest

_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer."
_MODULE = "nn.Module: "
#: In the order of their codes; 0 is not known by the operator itself.
_PHASES = ("other", "forward", "backward", "optimizer")
#: Modules deeper than this keep the innermost names only.
_MAX_MODULES = 32

_WHERE = ("start_ns", "end_ns", "_pid", "thread_id")
_NAME = pl.col("name")
#: What ``place`` and ``range_parents`` need of each table, to be selected from its rows.
OP_COLUMNS = (
    *(*_WHERE, "_external", "_order", "sequence"),
    (_NAME.str.starts_with(_BACKWARD) | (pl.col("_fwd").fill_null(0) > 0)).alias("backward"),
    _NAME.str.starts_with(_OPTIMIZER).alias("optimizer"),
)
API_COLUMNS = (*_WHERE, "_external")
TENSOR_COLUMNS = ("start_ns", "_pid", "thread_id")
RANGE_COLUMNS = (*_WHERE, (pl.col("category") == "python_function").alias("python"), "_python", "_python_parent")
#: The ranges that say something of the operators within them, and what of them.
MARKS = _NAME.str.starts_with(_OPTIMIZER) | _NAME.str.starts_with(_MODULE)
MARK_COLUMNS = (*_WHERE, "_order", "name")


@dataclass(frozen=True)
class Placed:
    """Values for the rows of each table, in its order: of ``op`` also parent, phase and the modules around it."""

    op: pl.DataFrame
    api: pl.DataFrame
    tensor: pl.DataFrame
    #: Operators whose ``External id`` another had already.
    renumbered: int


def place(ops: pl.DataFrame, apis: pl.DataFrame, tensors: pl.DataFrame, marks: pl.DataFrame) -> Placed:
    """Relate the rows of one file by time; the frames have the columns named above."""
    parts = (ops, marks, apis, tensors)
    edges = np.cumsum([0, *(part.height for part in parts)])
    op_rows, mark_rows, api_rows, tensor_rows = (slice(a, b) for a, b in pairwise(edges))
    count = int(edges[-1])
    opens = np.zeros(count, dtype=bool)
    opens[: edges[2]] = True
    is_op = np.zeros(count, dtype=bool)
    is_op[op_rows] = True
    parents = enclosing(
        np.concatenate([_threads(part) for part in parts]),
        np.concatenate([_ints(part, "start_ns") for part in parts]),
        np.concatenate([_ends(part) for part in parts]),
        opens,
        np.concatenate([_order(part) for part in parts]),
    )
    op_parents = nearest(parents, is_op)
    op_ids, renumbered = _number(ops["_external"])
    ids = np.append(op_ids.to_numpy(), 0)  # index -1: no operator

    def op_at(rows: slice) -> pl.Series:
        inner = op_parents[rows]
        return pl.select(pl.when(pl.lit(pl.Series(inner >= 0))).then(pl.lit(pl.Series(ids[inner])))).to_series()

    phases = np.zeros(count, dtype=np.int64)
    phases[op_rows] = _own_phases(ops)
    phases[mark_rows] = np.where(marks["name"].str.starts_with(_OPTIMIZER).to_numpy(), 3, 0)
    modules = _module_paths(parents, marks, op_rows, mark_rows)
    placed = pl.DataFrame(
        {
            "op_id": op_ids,
            "parent_id": op_at(op_rows),
            "phase": pl.Series(_inherited(phases, parents)[op_rows]).replace_strict(
                range(len(_PHASES)), _PHASES, return_dtype=pl.String
            ),
            "_modules": modules,
        }
    )
    return Placed(
        op=placed,
        api=pl.DataFrame({"op_id": op_at(api_rows)}),
        tensor=pl.DataFrame({"op_id": op_at(tensor_rows)}),
        renumbered=renumbered,
    )


def range_parents(ranges: pl.DataFrame) -> pl.Series:
    """Return the ``range_id`` (row number, from 1) of each range's parent, null where there is none.

    Python frames name theirs; annotations have the annotation that encloses them.
    """
    is_python = ranges["python"].to_numpy()
    inner = enclosing(_threads(ranges), _ints(ranges, "start_ns"), _ends(ranges), ~is_python, np.arange(ranges.height))
    named = ranges.select("_python").with_row_index("named", offset=1).drop_nulls().unique("_python", keep="first")
    frames = ranges.select("_python_parent").join(
        named, left_on="_python_parent", right_on="_python", how="left", maintain_order="left"
    )
    by_time = pl.Series("by_time", np.where(inner >= 0, inner + 1, 0))
    chosen = pl.when(pl.lit(pl.Series(is_python))).then(pl.col("named").cast(pl.Int64)).otherwise(by_time)
    return frames.select(pl.when(chosen > 0).then(chosen).alias("parent_id")).to_series()


def _threads(frame: pl.DataFrame) -> Ints:
    """One number for each thread of each process."""
    pid, thread = _ints(frame, "_pid"), _ints(frame, "thread_id")
    return (pid << 32) | thread


def _ints(frame: pl.DataFrame, column: str) -> Ints:
    return frame[column].fill_null(0).cast(pl.Int64).to_numpy()


def _ends(frame: pl.DataFrame) -> Ints:
    if "end_ns" not in frame.columns:
        return _ints(frame, "start_ns")
    return frame.select(pl.coalesce("end_ns", "start_ns")).to_series().to_numpy()


def _order(frame: pl.DataFrame) -> Ints:
    """Order of events that have equal times: the profiler's own number where it gives one, else the file's."""
    own = [name for name in ("_order", "_external") if name in frame.columns]
    order = frame.with_row_index().select(pl.coalesce(*own, pl.col("index").cast(pl.Int64)))
    return order.to_series().to_numpy()


def _number(external: pl.Series) -> tuple[pl.Series, int]:
    """Number the operators: by ``External id`` where it is given and new, else above all of them."""
    first = external.is_first_distinct() & external.is_not_null() & external.is_between(1, 1 << 62)
    highest = external.filter(first).max()
    made = (int(highest) if isinstance(highest, int) else 0) + (~first).cast(pl.Int64).cum_sum()
    renumbered = len(external) - int(first.sum()) - external.null_count()
    return pl.select(pl.when(first).then(external).otherwise(made).alias("op_id")).to_series(), renumbered


def _own_phases(ops: pl.DataFrame) -> Ints:
    """Return the code of the phase that each operator shows by itself: by its name, or by its sequence number."""
    joined = ops.filter(pl.col("backward") & (pl.col("sequence") >= 0))["sequence"].unique()
    code = (
        pl.when(pl.col("backward"))
        .then(2)
        .when(pl.col("optimizer"))
        .then(3)
        .when(pl.col("sequence").is_in(joined.implode()))
        .then(1)
        .otherwise(0)
    )
    return ops.select(code.cast(pl.Int64)).to_series().to_numpy()


def _inherited(phases: Ints, parents: Ints) -> Ints:
    """Give each interval without a phase that of its nearest ancestor with one."""
    known: Flags = phases > 0
    source = nearest(parents, known)
    return np.where(known, phases, np.where(source >= 0, phases[source], 0))


def _module_paths(parents: Ints, marks: pl.DataFrame, op_rows: slice, mark_rows: slice) -> pl.Series:
    """Return for each operator the ``nn.Module`` calls that enclose it, outermost first, joined with dots."""
    is_module = marks["name"].str.starts_with(_MODULE).to_numpy()
    if not is_module.any():
        return pl.Series([None] * (op_rows.stop - op_rows.start), dtype=pl.String)
    marked = np.zeros(len(parents), dtype=bool)
    marked[mark_rows] = is_module
    up = nearest(parents, marked)
    names = marks["name"].str.strip_prefix(_MODULE).to_list()
    inner = up[op_rows]
    paths = {-1: None} | {index: _path(index, up, names, mark_rows.start) for index in np.unique(inner) if index >= 0}
    return pl.Series([paths[index] for index in inner.tolist()], dtype=pl.String)


def _path(index: int, up: Ints, names: list[str], offset: int) -> str:
    parts: list[str] = []
    while index >= 0 and len(parts) < _MAX_MODULES:
        parts.append(names[index - offset])
        index = int(up[index])
    return ".".join(reversed(parts))
