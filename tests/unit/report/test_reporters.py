"""Every format of a result: what a person sees, and what a program reads back."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pasta.errors import PastaError
from pasta.report import FORMATS, Terminal, View, render, write
from pasta.report.cells import Cells
from pasta.report.layout import lay_out
from pasta.tools.result import Finding, Result, ResultColumn, ResultTable

GEMM = "void gemm<float, 128, 64>(float const*, float*)"


def example() -> Result:
    frame = pl.DataFrame(
        {
            "kernel": [f"{GEMM}_a", f"{GEMM}_b", "relu"],
            "calls": [8431, 2, 40],
            "total_ns": [104_100_000, 900, 2_500_000],
            "share": [97.6, 0.001, 2.3],
            "mean_ns": [12_347.0, 450.0, None],
        }
    )
    columns = (
        ResultColumn("kernel", key=True),
        ResultColumn("calls", "count"),
        ResultColumn("total_ns", "ns"),
        ResultColumn("share", "%", bar=True),
        ResultColumn("mean_ns", "ns"),
    )
    finding = Finding(
        "device-idle",
        "high",
        "the device is idle for 29 ms",
        29_000_000,
        0.204,
        "launch more at once",
        {"launches": 1204},
    )
    loss = pl.DataFrame({"source": ["cupti"], "table": ["kernel"], "records": [1200], "cause": ["buffer full"],
                         "remedy": ["raise --buffer-size"]})  # fmt: skip
    return Result(
        "kernels", [ResultTable("kernels", frame, columns, title="Kernels", top=2)], [finding], ["train.py"], loss
    )


def test_the_screen() -> None:
    # The second kernel's 900 ns are less than half of 0.01 ms, and 0.001 % less than half of 0.1 %.
    assert render(example()) == (
        "train.py\n"
        "\n"
        "Kernels (top 2 of 3)\n"
        "  kernel                                             calls  total ms  share %                    mean µs\n"
        "  void gemm<float, 128, 64>(float const*, float*)_a  8 431    104.10     97.6  ███████████████▋    12.35\n"
        "  void gemm<float, 128, 64>(float const*, float*)_b      2     <0.01     <0.1                       0.45\n"
        "\n"
        "Findings\n"
        "  ▲ high   the device is idle for 29 ms  20.4 %\n"
        "           launch more at once\n"
        "\n"
        "Not recorded\n"
        "  cupti lost 1 200 records of kernel: buffer full; raise --buffer-size\n"
    )


def test_a_narrow_screen_cuts_the_middle_of_names_and_leaves_columns_out() -> None:
    # The names differ at their ends, which stay. There is no room for the mean.
    assert render(example(), terminal=Terminal(width=68)).split("\n\n")[1] == (
        "Kernels (top 2 of 3)\n"
        "  kernel                  calls  total ms  share %\n"
        "  void gem…t*, float*)_a  8 431    104.10     97.6  ███████████████▋\n"
        "  void gem…t*, float*)_b      2     <0.01     <0.1\n"
        "  no room for mean µs: widen the terminal or choose with --fields"
    )


@pytest.mark.parametrize("width", range(1, 140, 7))
def test_tables_never_wrap(width: int) -> None:
    result = example()
    bare = Result("kernels", result.tables)  # sentences wrap, tables do not
    for line in render(bare, terminal=Terminal(width=width)).splitlines()[2:]:
        assert cell_len(line) <= max(width, 3)  # two columns of indentation and one cell


@pytest.mark.parametrize("width", range(30, 80, 5))
def test_numbers_are_shown_whole_or_not_at_all(width: int) -> None:
    columns = [Cells("name", ["x" * 50] * 2, right=False)]
    columns += [Cells("n", texts, right=True) for texts in (["8 431", "2"], ["104.10", "<0.01"], ["97.6", "-"])]
    layout = lay_out(columns, width)
    for row, texts in zip(layout.rows, zip(*(c.texts for c in columns), strict=True), strict=True):
        name, *numbers = row.split("  ")
        assert "…" in name or name == texts[0]
        assert [number.strip() for number in numbers if number.strip()] == list(texts[1 : 4 - len(layout.left_out)])


def test_names_that_differ_only_in_the_middle_stay_different() -> None:
    names = [f"{'x' * 40}{middle}{'y' * 40}" for middle in "abc"]
    table = ResultTable("t", pl.DataFrame({"name": names}), (ResultColumn("name"),))
    lines = render(Result("t", [table]), terminal=Terminal(width=30)).splitlines()[-3:]
    assert len(set(lines)) == 3


def test_colour_is_on_a_terminal_only_and_adds_nothing_to_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, coloured = render(example()), render(example(), terminal=Terminal(color=True))
    assert "\x1b[" not in plain
    assert "\x1b[1;31m  ▲ high" in coloured
    without = coloured
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[1;31m", "\x1b[0m"):
        without = without.replace(code, "")
    assert without == plain


class FakeTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_what_a_stream_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "77")
    assert Terminal.of(FakeTerminal()) == Terminal(width=77, color=True)
    assert Terminal.of(io.StringIO()) == Terminal(width=None, color=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Terminal.of(FakeTerminal()).color
    ascii_pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write(example(), ascii_pipe)  # what ASCII lacks is written otherwise, not refused
    ascii_pipe.flush()
    assert "mean us" in ascii_pipe.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]


def test_csv_has_every_row_and_plain_values() -> None:
    rows = list(csv.reader(io.StringIO(render(example(), "csv"))))
    assert rows[0] == ["kernel", "calls", "total_ns", "share", "mean_ns"]
    assert rows[1:] == [
        [f"{GEMM}_a", "8431", "104100000", "97.6", "12347.0"],
        [f"{GEMM}_b", "2", "900", "0.001", "450.0"],
        ["relu", "40", "2500000", "2.3", ""],
    ]


def test_several_tables_in_one_csv_are_named() -> None:
    result = example()
    text = render([result, Result("other", result.tables)], "tsv")
    blocks = text.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == ["# kernels.kernels", "# other.kernels"]
    assert blocks[0].splitlines()[1].split("\t") == ["kernel", "calls", "total_ns", "share", "mean_ns"]


def test_json_has_the_promised_shape() -> None:
    assert json.loads(render(example(), "json")) == {
        "version": 1,
        "tables": [
            {
                "name": "kernels",
                "columns": [
                    {"name": "kernel", "unit": ""},
                    {"name": "calls", "unit": "count"},
                    {"name": "total_ns", "unit": "ns"},
                    {"name": "share", "unit": "%"},
                    {"name": "mean_ns", "unit": "ns"},
                ],
                "rows": example().tables[0].frame.to_dicts(),
            }
        ],
        "findings": [
            {
                "id": "device-idle",
                "severity": "high",
                "text": "the device is idle for 29 ms",
                "cost_ns": 29_000_000,
                "share": 0.204,
                "remedy": "launch more at once",
                "evidence": {"launches": 1204},
            }
        ],
        "loss": example().loss.to_dicts(),
    }


def test_several_results_share_one_json_and_tell_a_loss_once() -> None:
    both = json.loads(render([example(), example()], "json"))
    assert [table["name"] for table in both["tables"]] == ["kernels.kernels", "kernels.kernels.2"]
    assert len(both["findings"]) == 2
    assert len(both["loss"]) == 1


def test_markdown_is_a_table() -> None:
    lines = render(example(), "markdown").splitlines()
    assert "| kernel | calls | total ms | share % |  | mean µs |" in lines
    assert "| --- | ---: | ---: | ---: | --- | ---: |" in lines
    assert any(
        line.startswith("| void gemm\\<float, 128, 64\\>(float const\\*, float\\*)\\_a | 8 431 |") for line in lines
    )


def test_detailed_tables_are_for_files() -> None:
    table = ResultTable("steps", pl.DataFrame({"step": [1]}), (ResultColumn("step", "id"),), title="Steps", detail=True)
    result = Result("workload", [table])
    assert "Steps" not in render(result)
    assert render(result, "csv") == "step\n1\n"


def test_names_cannot_steer_the_terminal() -> None:
    table = ResultTable("t", pl.DataFrame({"name": ["a\x1b[2Jb\nc\td"]}), (ResultColumn("name"),))
    assert render(Result("t", [table])).splitlines()[-1] == "  a\N{REPLACEMENT CHARACTER}[2Jb c d"


def test_series_are_drawn() -> None:
    table = ResultTable("t", pl.DataFrame({"over_time": [[0, 1, 4, 8]]}), (ResultColumn("over_time", "series"),))
    assert render(Result("t", [table])).splitlines()[-1] == "   ▁▄█"


def test_columns_of_a_family_share_a_unit() -> None:
    # Medians decide: most values are microseconds, so the one of 2 s is 2 000 000 us.
    frame = pl.DataFrame({"min_ns": [2_000, 3_000], "max_ns": [5_000, 2_000_000_000]})
    columns = tuple(ResultColumn(name, "ns", family="call") for name in frame.columns)
    lines = render(Result("t", [ResultTable("t", frame, columns)])).splitlines()
    assert lines[-3:] == ["  min µs        max µs", "    2.00          5.00", "    3.00  2 000 000.00"]


def test_an_unknown_format() -> None:
    with pytest.raises(PastaError, match="there is no format 'jsn'; did you mean json"):
        render(example(), "jsn")


def view(**options: Any) -> list[list[str]]:
    return list(csv.reader(io.StringIO(render(example(), "csv", View(**options)))))[1:]


def test_sort_limit_and_fields() -> None:
    assert [row[0] for row in view(sort=["calls"], fields=["kernel"])] == [f"{GEMM}_a", "relu", f"{GEMM}_b"]
    assert view(sort=["+calls"], fields=["calls"], limit=2) == [["2"], ["40"]]
    assert view(sort=["-kernel"], fields=["calls"], limit=1) == [["2"]]
    # An unknown mean is last, whichever way the others go.
    assert [row[0] for row in view(sort=["mean_ns"], fields=["calls"])] == ["8431", "2", "40"]
    assert [row[0] for row in view(sort=["+mean_ns"], fields=["calls"])] == ["2", "8431", "40"]


def test_percent_limit() -> None:
    assert [row[1] for row in view(percent_limit=2.0)] == ["8431", "40"]


def test_a_limit_overrides_what_a_screen_shows_at_first() -> None:
    assert "top 2" not in render(example(), view=View(limit=0))
    assert "relu" in render(example(), view=View(limit=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": ["cals"]}, "cannot sort by 'cals'.*use calls"),
        ({"fields": ["nothing"]}, "cannot show 'nothing'"),
        ({"limit": -1}, "use 0 for all rows"),
    ],
)
def test_views_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PastaError, match=message):
        render(example(), "csv", View(**options))


values = {
    "text": (pl.String, st.text(max_size=8)),
    "int": (pl.Int64, st.integers(-(2**63), 2**63 - 1)),
    "small": (pl.UInt8, st.integers(0, 255)),
    "float": (pl.Float64, st.floats()),
    "flag": (pl.Boolean, st.booleans()),
    "list": (pl.List(pl.Float64), st.lists(st.floats(), max_size=3)),
    "nothing": (pl.Null, st.none()),
}
short = st.text(max_size=30)
units = st.sampled_from(["", "ns", "bytes", "bytes/s", "%", "count", "ratio", "id", "series", "furlong"])


@st.composite
def results(draw: st.DrawFn) -> Result:
    """Any table that a tool might make, sensible or not."""
    kinds = draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=5))
    rows = draw(st.integers(0, 4))
    series = [
        pl.Series(f"c{i}", draw(st.lists(st.none() | values[kind][1], min_size=rows, max_size=rows)), values[kind][0])
        for i, kind in enumerate(kinds)
    ]
    columns = tuple(
        ResultColumn(
            s.name, draw(units), draw(st.text(max_size=4)), bar=draw(st.booleans()), family=draw(st.text(max_size=1))
        )
        for s in series
    )
    evidence = draw(st.dictionaries(st.text(max_size=3), st.floats() | st.text(max_size=3) | st.none(), max_size=2))
    share = draw(st.none() | st.floats(0, 1))
    finding = Finding(
        "f", draw(st.sampled_from(["high", "info"])), draw(st.text(max_size=30)), share=share, evidence=evidence
    )
    top = draw(st.none() | st.integers(0, 3))
    return Result(draw(st.text(max_size=5)), [ResultTable("t", pl.DataFrame(series), columns, top=top)], [finding])


@given(results(), st.sampled_from(sorted(FORMATS)), st.none() | st.integers(0, 100), st.booleans(), st.booleans())
def test_no_result_breaks_a_reporter(
    result: Result, format: str, width: int | None, color: bool, unicode: bool
) -> None:
    text = render(result, format, terminal=Terminal(width, color, unicode))
    assert unicode or format != "table" or text.isascii()


def test_a_carriage_return_ends_no_row() -> None:
    columns = [ResultColumn("name"), ResultColumn("count")]
    table = ResultTable("t", pl.DataFrame({"name": ["a\rb", "\r", "c"], "count": [1, None, 3]}), columns)
    rows = list(csv.reader(io.StringIO(render(Result("", [table], []), "csv"), newline="")))
    assert rows == [["name", "count"], ["a\rb", "1"], ["\r", ""], ["c", "3"]]


@given(results())
def test_any_csv_reads_back(result: Result) -> None:
    frame = result.tables[0].frame
    rows = list(csv.reader(io.StringIO(render(result, "csv"), newline="")))
    assert rows[0] == frame.columns
    body = [row or [""] for row in rows[1:]]
    assert len(body) == frame.height
    for name, dtype in frame.schema.items():
        for row, value in zip(body, frame[name].to_list(), strict=True):
            cell = row[frame.columns.index(name)]
            if dtype == pl.String:
                assert cell == (value or "")
            elif dtype.is_float() and value is not None:
                assert (float(cell) == value) if math.isfinite(value) else cell == ""
            elif dtype.is_integer() and value is not None:
                assert int(cell) == value


def no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


@given(results())
def test_any_json_is_strict(result: Result) -> None:
    read = json.loads(render(result, "json"), parse_constant=no_constant)
    assert set(read) == {"version", "tables", "findings", "loss"}
    (table,) = read["tables"]
    assert len(table["rows"]) == result.tables[0].frame.height
    assert all(list(row) == [column["name"] for column in table["columns"]] for row in table["rows"])
