"""Join two recordings of one program: times from a timing pass, memory accesses from a memory pass.

Measuring memory accesses makes times meaningless, so ``pasta record --passes timing,memory`` runs the program twice.
A launch of one run is that of the other when rank and process, thread, path of operators, kernel, grid and block are
the same and it is the n-th of these in both. Where the two runs made a different number of such launches there is no
telling which is which: none of them is joined, and they are counted. Memory objects and tensors are joined in the same
way, by who allocated how many bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pasta.schema import TABLES
from pasta.trace.frames import conform, empty_frame

#: Of the memory pass only these are taken: what its launches accessed, and what that refers to. Single accesses are
#: not: their addresses are those of objects in the other run.
MEASURED = ("access_object", "access_site", "access_block")
#: What the join itself needs of both runs.
NEEDED = ("process", "thread", "kernel", "op", "alloc", "tensor")
#: Read of the memory pass besides.
CARRIED = ("line", "build", "loss")

_GRID = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "global_x", "global_y", "global_z")
_FACTS = ("registers", "static_shared_bytes", "dynamic_shared_bytes", "local_bytes")
_DEEPEST = 1000
_NOT_EQUAL = "the launches of the memory pass that made them have no equal in the timing pass"
_NOT_REPEATED = "the program did not do the same in both passes"

Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Matched:
    """How many launches (objects) of both runs are the same, and how many each run has besides."""

    both: int
    timing_only: int
    memory_only: int


@dataclass(frozen=True)
class Joined:
    """The tables of the timing pass that change (``replaced``), rows to add (``added``), and what matched."""

    replaced: dict[str, pl.DataFrame]
    added: dict[str, pl.DataFrame]
    launches: Matched
    objects: Matched
    tensors: Matched


def join(timing: Tables, memory: Tables) -> Joined:
    """Join the tables of two traces of one program; a table that is missing has no rows.

    ``timing`` needs those in `NEEDED`, ``memory`` those in `CARRIED` and `MEASURED` too. Ids of the memory pass become
    those of the timing pass; an object that only the memory pass has gets an id of its own and no time.
    """
    timing = {name: timing.get(name, empty_frame(TABLES[name])) for name in NEEDED}
    memory = {name: memory.get(name, empty_frame(TABLES[name])) for name in (*NEEDED, *CARRIED, *MEASURED)}
    pids = _processes(timing["process"], memory["process"])
    known = {name: _known_of(timing[name], memory[name]) for name in ("kernel", "alloc", "tensor")}
    ours, theirs = _Run(timing, None, known), _Run(memory, pids, known)

    launches, matched_launches = _match(ours.launches(), theirs.launches(), "launch_id")
    objects, matched_objects = _match(ours.objects(), theirs.objects(), "object_id")
    tensors, matched_tensors = _match(ours.tensors(), theirs.tensors(), "_row", "tensor_id")

    kernels = _add_facts(timing["kernel"], memory["kernel"], launches)
    object_ids, new_objects = _object_ids(timing["alloc"], memory["alloc"], objects, pids)
    added = {"alloc": new_objects, "line": _move(memory["line"], pids), "build": _move(memory["build"], pids)}
    losses = [_losses(memory["loss"], pids)]
    for name in MEASURED:
        rows, lost = _measured(memory[name], launches, object_ids, kernels)
        added[name] = rows
        if lost:
            losses.append(_loss(name, lost, _NOT_EQUAL))
    if matched_launches.timing_only or matched_launches.memory_only:
        losses.append(_loss("kernel", matched_launches.timing_only + matched_launches.memory_only, _NOT_REPEATED))
    tensor, new_tensors = _tensor_ids(timing["tensor"], memory["tensor"], tensors, pids)
    added |= {"loss": pl.concat(losses), "tensor": new_tensors, "build": _no_times(added["build"])}
    return Joined(
        {"kernel": kernels, "tensor": tensor},
        {name: rows for name, rows in added.items() if rows.height},
        matched_launches,
        matched_objects,
        matched_tensors,
    )


def _processes(timing: pl.DataFrame, memory: pl.DataFrame) -> dict[int, int]:
    """Return the pid in the timing pass of each pid of the memory pass, where it has one."""
    found = [_numbered(rows, ["rank", "command"], ["start_ns", "pid"], "pid") for rows in (timing, memory)]
    both = found[0].join(found[1], on=["rank", "command", "_count", "_ordinal"], nulls_equal=True, suffix="_memory")
    return dict(both.select("pid_memory", "pid").iter_rows())


def _numbered(rows: pl.DataFrame, key: list[str], order: list[str], *names: str) -> pl.DataFrame:
    """Return ``key`` and ``names`` of ``rows``, how many have an equal key, and each one's number among them."""
    return rows.sort(order, nulls_last=True, maintain_order=True).select(
        *key, *names, pl.len().over(key).alias("_count"), pl.int_range(pl.len()).over(key).alias("_ordinal")
    )


def _known_of(*runs: pl.DataFrame) -> list[str]:
    """Return which of thread and operators every run knows: CUPTI's kernels have them only where calls are traced."""
    told = {"thread_id": "_thread", "op_id": "_path"}
    return [name for column, name in told.items() if all(rows[column].null_count() < rows.height for rows in runs)]


class _Run:
    """The rows of one run with keys that are alike in the other: pids of the timing pass, threads and operators.

    ``known`` says for each table which of the latter two can be compared.
    """

    def __init__(self, tables: Tables, pids: dict[int, int] | None, known: Mapping[str, list[str]]) -> None:
        self._tables, self._pids, self._known = tables, pids, known
        self._threads = self._thread_keys()
        self._ops = self._op_paths()

    def launches(self) -> pl.DataFrame:
        rows = self._tables["kernel"].filter(pl.col("launch_id").is_not_null())
        order = ["correlation_id", "_at", "launch_id"]
        rows = rows.with_columns(pl.coalesce("queued_ns", "start_ns").alias("_at"))
        return self._keyed(rows, [*self._known["kernel"], "name", *_GRID], order, "launch_id")

    def objects(self) -> pl.DataFrame:
        rows = self._tables["alloc"].filter(pl.col("action") == "alloc", pl.col("object_id").is_not_null())
        rows = rows.unique(["pid", "object_id"], keep="first", maintain_order=True)
        return self._keyed(rows, [*self._known["alloc"], "bytes"], ["start_ns", "object_id"], "object_id")

    def tensors(self) -> pl.DataFrame:
        """Return allocations on devices: host memory is attributed to no tensor."""
        rows = self._tables["tensor"].with_row_index("_row").filter(pl.col("action") == "alloc", device_tensors())
        key = [*self._known["tensor"], "device_type", "device_index", "bytes"]
        return self._keyed(rows, key, ["start_ns"], "_row", "tensor_id")

    def _keyed(self, rows: pl.DataFrame, key: list[str], order: list[str], *names: str) -> pl.DataFrame:
        rows = rows.join(self._threads, on=["pid", "thread_id"], how="left").join(
            self._ops, on=["pid", "op_id"], how="left"
        )
        moved = rows.with_columns(pl.col("pid").alias("_pid"))
        if self._pids is not None:
            moved = moved.with_columns(pl.col("pid").replace_strict(self._pids, default=None, return_dtype=pl.Int32))
        return _numbered(moved, ["pid", *key], order, "_pid", *names)

    def _thread_keys(self) -> pl.DataFrame:
        """Return the threads with a name and the number among the process's threads of that name."""
        threads = self._tables["thread"].unique(["pid", "thread_id"], keep="last", maintain_order=True)
        main = pl.when(pl.col("pid") == pl.col("thread_id")).then(pl.lit("main"))
        numbered = _numbered(threads, ["pid", "name"], ["start_ns", "thread_id"], "thread_id")
        label = pl.concat_str(pl.col("name").fill_null(""), pl.lit(" "), pl.col("_ordinal").cast(pl.String))
        return numbered.select("pid", "thread_id", pl.coalesce(main, label).alias("_thread"))

    def _op_paths(self) -> pl.DataFrame:
        """Return the operators that did anything, with the names from the outermost one to each as its path."""
        used = pl.concat([self._tables[name].select("pid", "op_id") for name in ("kernel", "alloc", "tensor")])
        operators = self._tables["op"].unique(["pid", "op_id"], keep="first", maintain_order=True)
        callers = operators.select("pid", "parent_id", "name", _at="op_id")
        level = used.drop_nulls().unique(maintain_order=True).with_columns(_at="op_id", _path=pl.lit(""))
        done = []
        for _ in range(_DEEPEST):  # a cycle of callers in a damaged trace must end
            level = level.join(callers, on=["pid", "_at"], how="left", maintain_order="left")
            outside = pl.col("name").is_null() & pl.col("parent_id").is_null()
            done.append(level.filter(outside))
            path = pl.concat_str(pl.col("name").fill_null(""), "_path", separator="\n")
            level = level.filter(~outside).select("pid", "op_id", _at="parent_id", _path=path)
            if level.is_empty():
                break
        return pl.concat([rows.select("pid", "op_id", "_path") for rows in (*done, level)])


def device_tensors() -> pl.Expr:
    """Which rows of `tensor` are of device memory."""
    return pl.col("device_type").is_not_null() & (pl.col("device_type") != "cpu")


def _match(timing: pl.DataFrame, memory: pl.DataFrame, *names: str) -> tuple[pl.DataFrame, Matched]:
    """Return the pairs of rows with an equal key, count and number: ``_pid``, ``names``, and the same ``_memory``."""
    key = [name for name in timing.columns if name not in (*names, "_pid")]
    both = timing.join(memory.filter(pl.col("pid").is_not_null()), on=key, nulls_equal=True, suffix="_memory")
    pairs = both.select("_pid", *names, *(pl.col(f"{name}_memory") for name in ("_pid", *names)))
    return pairs, Matched(pairs.height, timing.height - pairs.height, memory.height - pairs.height)


def _add_facts(timing: pl.DataFrame, memory: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of the timing pass with what only the memory pass knows of how they were compiled."""
    facts = launches.join(
        memory.select("pid", "launch_id", *_FACTS),
        left_on=["_pid_memory", "launch_id_memory"],
        right_on=["pid", "launch_id"],
        how="left",
    ).select(pl.col("_pid").alias("pid"), "launch_id", *_FACTS)
    joined = timing.join(facts, on=["pid", "launch_id"], how="left", maintain_order="left", suffix="_memory")
    filled = joined.with_columns(pl.coalesce(name, f"{name}_memory").alias(name) for name in _FACTS)
    return filled.select(timing.columns)


def _object_ids(
    timing: pl.DataFrame, memory: pl.DataFrame, objects: pl.DataFrame, pids: dict[int, int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the new id of each object of the memory pass, and the rows of `alloc` of those that only it has."""
    last = timing.group_by("pid").agg(pl.col("object_id").max().alias("_last"))
    named = _move(memory, pids, keep="_pid_memory").filter(pl.col("object_id").is_not_null())
    made = pl.concat([named.filter(pl.col("action") == "alloc"), named])  # where it was made tells more than its end
    ours = objects.select("_pid_memory", object_id="object_id_memory", _ours="object_id")
    placed = (
        made.unique(["_pid_memory", "object_id"], keep="first", maintain_order=True)
        .join(ours, on=["_pid_memory", "object_id"], how="left", maintain_order="left")
        .join(last, on="pid", how="left", maintain_order="left")
        .with_columns(_new=pl.coalesce("_ours", pl.col("_last").fill_null(0) + pl.col("object_id")))
    )
    ids = placed.select("_pid_memory", "object_id", "_new")
    added = placed.filter(pl.col("_ours").is_null()).with_columns(object_id="_new", action=pl.lit("alloc"))
    return ids, added.select(_known_elsewhere(added, timing.columns))


def _known_elsewhere(rows: pl.DataFrame, columns: Sequence[str]) -> list[pl.Expr]:
    """Return ``columns`` of rows of the memory pass, null where they say when or in which stream of that run."""
    own = ("start_ns", "end_ns", "thread_id", "context_id", "stream_id", "correlation_id", "op_id", "parent_object_id")
    return [pl.lit(None, rows.schema[name]).alias(name) if name in own else pl.col(name) for name in columns]


def _tensor_ids(
    timing: pl.DataFrame, memory: pl.DataFrame, tensors: pl.DataFrame, pids: dict[int, int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tensors of the timing pass with the ids of the memory pass, and the rows that only it has."""
    ids = tensors.select("_row", pl.col("tensor_id_memory").alias("_id"))
    place = ["pid", "device_type", "device_index", "address"]
    rows = timing.with_row_index("_row").join(ids, on="_row", how="left", maintain_order="left")
    made = pl.when(pl.col("action") == "alloc").then(pl.coalesce("_id", pl.lit(-1)))  # -1: known to be none
    filled = made.forward_fill().over(place, order_by=["start_ns", "_row"])
    named = rows.with_columns(pl.when(filled >= 0).then(filled).alias("tensor_id")).select(timing.columns)
    known = tensors.select(pl.col("_pid_memory").alias("pid"), pl.col("tensor_id_memory").alias("tensor_id"))
    others = memory.filter(pl.col("tensor_id").is_not_null(), pl.col("action") == "alloc").join(
        known, on=["pid", "tensor_id"], how="anti", maintain_order="left"
    )
    return named, _move(others, pids).select(_known_elsewhere(others, timing.columns))


def _measured(
    rows: pl.DataFrame, launches: pl.DataFrame, object_ids: pl.DataFrame, kernels: pl.DataFrame
) -> tuple[pl.DataFrame, int]:
    """Return rows about launches of the memory pass as rows about those of the timing pass, and how many have none."""
    columns = rows.columns
    joined = rows.rename({"pid": "_pid_memory", "launch_id": "launch_id_memory"}).join(
        launches.rename({"_pid": "pid"}), on=["_pid_memory", "launch_id_memory"], how="inner", maintain_order="left"
    )
    if "object_id" in columns:
        joined = joined.join(object_ids, on=["_pid_memory", "object_id"], how="left", maintain_order="left")
        joined = joined.with_columns(object_id="_new")
    if "start_ns" in columns:
        begin = pl.coalesce("start_ns", "queued_ns")
        times = kernels.select("pid", "launch_id", _start=begin, _end="end_ns")
        joined = joined.join(times, on=["pid", "launch_id"], how="left", maintain_order="left")
        joined = joined.with_columns(start_ns="_start", end_ns="_end")
    return joined.select(columns), rows.height - joined.height


def _move(rows: pl.DataFrame, pids: dict[int, int], keep: str | None = None) -> pl.DataFrame:
    """Return the rows of processes that the timing pass has too, under its pid; ``keep`` names the old one's column."""
    kept = [] if keep is None else [pl.col("pid").alias(keep)]
    moved = rows.with_columns(*kept, pl.col("pid").replace_strict(pids, default=None, return_dtype=pl.Int32))
    return moved.filter(pl.col("pid").is_not_null())


def _no_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of the memory pass without its times, which mean nothing on the clock of the other."""
    times = ("start_ns", "end_ns")
    return rows.with_columns(pl.lit(None, pl.Int64).alias(name) for name in times if name in rows.columns)


def _losses(losses: pl.DataFrame, pids: dict[int, int]) -> pl.DataFrame:
    pid = pl.col("pid").replace_strict(pids, default=None, return_dtype=pl.Int32)
    return _no_times(losses).with_columns(pid, (pl.lit("memory pass: ") + pl.col("cause")).alias("cause"))


def _loss(table: str, records: int, cause: str) -> pl.DataFrame:
    row = {"source": "join", "table": table, "records": records, "cause": cause}
    return conform(pl.DataFrame([row]), TABLES["loss"])
