"""Compare two results of one tool row by row: what B costs more or less than A, and whether that is chance."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from pasta.errors import PastaError
from pasta.tools import runner
from pasta.tools.analysis.kernel_names import base_name
from pasta.tools.analysis.significance import holm, mann_whitney
from pasta.tools.base import Tool, TraceView, option_specs
from pasta.tools.filters import Filters
from pasta.tools.result import Finding, Result, ResultColumn, ResultTable

#: How rows find their partner: by name, by name without template arguments, or by operator or range.
MATCHES = ("name", "base", "op", "range")
_SIGNIFICANT = 0.05
_THRESHOLD = re.compile(r"(\d+(?:\.\d+)?)\s*%(?::(.+))?")


@dataclass(frozen=True)
class Comparison:
    """One table of both results. ``both`` has the keys and ``base``, ``new``, ``delta``, ``ratio``, ``p``, ``verdict``.

    ``only_a`` and ``only_b`` have the keys and ``value`` of the rows that the other side lacks.
    """

    table: ResultTable
    column: ResultColumn
    both: pl.DataFrame
    only_a: pl.DataFrame
    only_b: pl.DataFrame

    @property
    def totals(self) -> tuple[float, float] | None:
        """Sums over all rows of A and of B; None when the column cannot be added up."""
        if self.column.merge != "sum":
            return None
        a = float(self.both["base"].sum()) + float(self.only_a["value"].sum())
        return a, float(self.both["new"].sum()) + float(self.only_b["value"].sum())


@dataclass(frozen=True)
class Diff:
    """All comparisons of two results; deltas are B - A."""

    comparisons: Sequence[Comparison]
    header: Sequence[str]
    findings: Sequence[Finding] = field(default_factory=tuple)

    def result(self) -> Result:
        """Return the comparisons as tables, the rows of one side in tables of their own."""
        tables = [table for comparison in self.comparisons for table in _tables(comparison)]
        return Result("diff", tables, self.findings, self.header)

    def exceeds(self, threshold: str) -> str | None:
        """Return what grew by more than ``PERCENT%[:NAME]``, as a sentence, or None.

        NAME is a row (``step``, a kernel) or a table (its total); without it the first table counts. Growth that
        measurements show to be chance does not count. Raises `PastaError` for a threshold that makes no sense.
        """
        match = _THRESHOLD.fullmatch(threshold.strip())
        if match is None:
            raise PastaError(f"{threshold!r} is no threshold", "write it like 5% or 5%:step")
        limit, name = float(match[1]), match[2]
        label, a, b, verdict = self._figure(name)
        if a <= 0:
            grown, by = b > 0, "from nothing"
        else:
            grown, by = 100 * (b - a) / a > limit, f"by {100 * (b - a) / a:.1f} %"
        return f"{label} grew {by}, more than {limit:g} %" if grown and verdict != _CHANCE else None

    def _figure(self, name: str | None) -> tuple[str, float, float, str]:
        """Return (label, A, B, verdict) of the row or table called ``name``."""
        if not self.comparisons:
            raise PastaError("the traces have no table in common", "compare traces of the same kind of recording")
        for comparison in self.comparisons:
            if name is not None and name != comparison.table.name:
                rows = comparison.both.filter(pl.any_horizontal(pl.col(k) == name for k in _text_keys(comparison.both)))
                if rows.height == 1:
                    row = rows.row(0, named=True)
                    return name, row["base"] or 0.0, row["new"] or 0.0, row["verdict"]
                continue
            totals, label = comparison.totals, f"{comparison.column.name} of {comparison.table.name}"
            if totals is not None:
                return label, *totals, ""
            if comparison.both.height == 1:
                row = comparison.both.row(0, named=True)
                return label, row["base"] or 0.0, row["new"] or 0.0, row["verdict"]
            raise PastaError(f"{label} cannot be added up", "name a row, for example --fail-above 5%:step")
        known = [c.table.name for c in self.comparisons] + [str(n) for c in self.comparisons for n in _names(c.both)]
        close = difflib.get_close_matches(str(name), known, n=3)
        raise PastaError(f"both traces have no row or table {name!r}", f"use {' or '.join(close or known[:5])}")


_CHANCE = "no significant change"


def diff_traces(
    tool: type[Tool],
    a: TraceView,
    b: TraceView,
    options: object = None,
    filters: Filters | None = None,
    *,
    match: str = "name",
    column: str | None = None,
    labels: tuple[str, str] = ("A", "B"),
) -> Diff:
    """Run ``tool`` on both traces and compare. A tool that can match its rows itself (``by``, ``base``) is told to."""
    options = tool.Options() if options is None else options
    choices = {spec.name: spec.choices for spec in option_specs(tool.Options)}
    if match in choices.get("by", ()):
        options = dataclasses.replace(options, by=match)  # type: ignore[type-var]
    elif match == "base" and "base" in choices:
        options, match = dataclasses.replace(options, base=True), "name"  # type: ignore[type-var]
    results = [runner.run(tool, trace, options, filters) for trace in (a, b)]
    return diff(results[0], results[1], match=match, column=column, labels=labels)


def diff(
    a: Result, b: Result, *, match: str = "name", column: str | None = None, labels: tuple[str, str] = ("A", "B")
) -> Diff:
    """Compare the tables of two results that have keys, by one ``column`` each (None: its main one).

    The main column is the one that samples explain, else the first time, else the first size, else the first number;
    a time that cannot be merged is a moment and comes after sizes that can.
    ``match="op"`` and ``"range"`` compare the tables whose rows are operators or ranges. Raises `PastaError`.
    """
    if match not in MATCHES:
        raise PastaError(f"rows cannot be matched by {match!r}", f"use {', '.join(MATCHES)}")
    others = {table.name: table for table in b.tables}
    pairs = [(table, others[table.name]) for table in a.tables if table.keys and table.name in others]
    if match in ("op", "range"):
        pairs = [(left, right) for left, right in pairs if match in left.keys]
        if not pairs:
            raise PastaError(f"no table of both results has {match} rows", "record operators and ranges: -t op,range")
    comparisons = []
    for left, right in pairs:
        chosen = _column(left, column)
        if chosen is not None and chosen.name in right.frame.columns:
            comparisons.append(_compare(left, right, chosen, by_base=match == "base"))
    if column is not None and not comparisons:
        raise PastaError(f"no table has a number {column!r} to compare", "name a column that the tool shows")
    header = ["B - A", f"A: {_described(labels[0], a)}", f"B: {_described(labels[1], b)}"]
    return Diff(comparisons, header, _missing(a, b))


def _described(label: str, result: Result) -> str:
    return " · ".join(filter(None, (label, *result.header[:1])))


def _missing(a: Result, b: Result) -> list[Finding]:
    """Say which tables only one of the results has."""
    names = [{table.name for table in result.tables if table.keys} for result in (a, b)]
    sides = (("A", names[0] - names[1]), ("B", names[1] - names[0]))
    return [
        Finding("not-compared", "info", f"only {side} has {', '.join(sorted(only))}", evidence={"tables": sorted(only)})
        for side, only in sides
        if only
    ]


def _column(table: ResultTable, wanted: str | None) -> ResultColumn | None:
    numbers = [c for c in table.columns if not c.key and c.unit not in ("", "id", "series")]
    if wanted is not None:
        return next((c for c in numbers if c.name == wanted), None)
    explained = [c for c in numbers if table.samples is not None and c.name == table.samples.column]
    added = [c for unit in ("ns", "bytes") for c in numbers if c.unit == unit and c.merge == "sum"]
    others = [c for unit in ("ns", "bytes") for c in numbers if c.unit == unit]
    merged = [c for c in others if c.merge]  # not a moment, such as that of a peak
    explained_only = explained if not added else []
    return next(iter([*explained_only, *added, *merged, *others, *numbers]), None)


def _compare(left: ResultTable, right: ResultTable, column: ResultColumn, by_base: bool) -> Comparison:
    keys = list(left.keys)
    a, b = (_values(table, column, by_base) for table in (left, right))
    both = a.join(b, on=keys, suffix="_b", nulls_equal=True).rename({"value": "base", "value_b": "new"})
    delta = pl.col("new") - pl.col("base")
    both = both.with_columns(
        delta.alias("delta"), pl.when(pl.col("base") != 0).then(pl.col("new") / pl.col("base")).alias("ratio")
    ).sort(
        pl.col("delta").abs(),
        pl.max_horizontal("base", "new"),
        *keys,
        descending=[True, True, *([False] * len(keys))],
        nulls_last=True,
    )
    # Samples of rows that are merged do not stand for the merged row.
    p_values = [None] * both.height if by_base else _p_values(left, right, both)
    both = both.with_columns(pl.Series("p", p_values, dtype=pl.Float64))
    tested = left.samples is not None and left.samples.column == column.name
    both = both.with_columns(_verdict() if tested else pl.lit("").alias("verdict"))
    alone = [
        x.join(y, on=keys, how="anti", nulls_equal=True).sort("value", *keys, descending=[True, *([False] * len(keys))])
        for x, y in ((a, b), (b, a))
    ]
    return Comparison(left, column, both, alone[0], alone[1])


def _values(table: ResultTable, column: ResultColumn, by_base: bool) -> pl.DataFrame:
    """Return the keys and the column's ``value`` of each row, rows of equal keys merged."""
    frame = _based(table.frame, table.keys) if by_base else table.frame
    whole = frame.schema[column.name].is_integer() and not column.merge.startswith("mean:")
    value = _merged(column).cast(pl.Int64 if whole else pl.Float64)  # signed: deltas are
    return frame.group_by(table.keys, maintain_order=True).agg(value.alias("value"))


def _merged(column: ResultColumn) -> pl.Expr:
    value = pl.col(column.name)
    if column.merge in ("sum", "min", "max"):
        return getattr(value, column.merge)()  # type: ignore[no-any-return]
    if column.merge.startswith("mean:"):
        weight = pl.col(column.merge.removeprefix("mean:"))
        return (value * weight).sum() / weight.filter(value.is_not_null()).sum()
    return pl.when(pl.len() == 1).then(value.first())


def _based(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    texts = [key for key in keys if frame.schema[key] == pl.String]
    return frame.with_columns(
        pl.col(key).replace_strict(
            names, [base_name(name) for name in names], default=None, return_dtype=pl.String
        )
        for key in texts
        if (names := frame[key].drop_nulls().unique().to_list())
    )  # fmt: skip


def _p_values(left: ResultTable, right: ResultTable, both: pl.DataFrame) -> list[float | None]:
    """Test each row of ``both`` for which both sides have samples; corrected for the number of tests."""
    if left.samples is None or right.samples is None or left.samples.column != right.samples.column:
        return [None] * both.height
    keys = list(left.keys)
    groups = [
        {key: part["value"].to_numpy() for key, part in samples.frame.partition_by(keys, as_dict=True).items()}
        for samples in (left.samples, right.samples)
    ]
    return holm([mann_whitney(groups[0].get(key, []), groups[1].get(key, [])) for key in both.select(keys).rows()])


def _verdict() -> pl.Expr:
    p = pl.col("p")
    return (
        pl.when(p.is_null())
        .then(pl.lit(""))
        .when(p >= _SIGNIFICANT)
        .then(pl.lit(_CHANCE))
        .when(p < 0.001)
        .then(pl.lit("significant (p < 0.001)"))
        .otherwise(pl.format("significant (p = {})", p.round(3)))
        .alias("verdict")
    )


def _tables(comparison: Comparison) -> list[ResultTable]:
    table, column = comparison.table, comparison.column
    keys = tuple(c for c in table.columns if c.key)
    title = f"{table.title or table.name}: {column.heading}"
    numbers = (
        *(ResultColumn(name, column.unit, label, family="value") for name, label in (("base", "A"), ("new", "B"))),
        ResultColumn("delta", column.unit, family="value"),
        ResultColumn("ratio", "ratio"),
    )
    tested = comparison.both["p"].null_count() < comparison.both.height
    if tested:
        explained = table.column(table.samples.column).heading if table.samples else ""
        numbers += (ResultColumn("p", "ratio", f"p ({explained})"), ResultColumn("verdict"))
    tables = [ResultTable(table.name, comparison.both, (*keys, *numbers), title=title, top=table.top or 20)]
    for side, rows in (("a", comparison.only_a), ("b", comparison.only_b)):
        if rows.height:
            value = ResultColumn("value", column.unit, column.heading)
            only = f"{title}, only in {side.upper()}"
            tables.append(ResultTable(f"{table.name}_only_{side}", rows, (*keys, value), title=only, top=5))
    return tables


def _text_keys(frame: pl.DataFrame) -> list[str]:
    return [name for name, dtype in frame.schema.items() if dtype == pl.String and name != "verdict"]


def _names(frame: pl.DataFrame) -> list[str]:
    return [name for key in _text_keys(frame) for name in frame[key].drop_nulls().to_list()]
