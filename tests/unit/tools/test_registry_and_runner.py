"""Find tools, their options, and run them: whole, in parts by threads, and on a Dask cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from textwrap import dedent
from typing import Any

import polars as pl
import pytest

from pasta.errors import PastaError
from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option, registry
from pasta.tools.base import option_specs
from pasta.tools.filters import Filters
from pasta.tools.runner import run
from pasta.tools.testing import trace_of
from pasta.trace import Trace, TraceWriter

LONGEST = """
    from __future__ import annotations

    from dataclasses import dataclass

    import polars as pl

    from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, option


    class Longest(Tool):
        name = "longest"
        summary = "the longest kernels"
        needs = frozenset({"kernel"})

        @dataclass(frozen=True)
        class Options(ToolOptions):
            count: int = option(3, "how many to list")

        def run(self, trace, options):
            time = (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns")
            frame = trace.table("kernel").select("name", time).top_k(options.count, by="time_ns").collect()
            columns = (ResultColumn("name", key=True), ResultColumn("time_ns", "ns"))
            return Result(self.name, [ResultTable("longest", frame, columns)])
"""


class Pids(Tool):
    """Works in parts: each lists its process."""

    name = "pids"
    summary = "processes"
    needs = frozenset({"kernel"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        return self.combine([self.partial(trace, options)], options)

    def partial(self, trace: TraceView, options: ToolOptions) -> list[tuple[int, str]]:
        return trace.table("kernel").select("pid", "name").collect().rows()

    def combine(self, parts: list[list[tuple[int, str]]], options: ToolOptions) -> Result:
        rows = [(part, *row) for part, rows in enumerate(parts) for row in rows]
        frame = pl.DataFrame(rows, schema=["part", "pid", "name"], orient="row")
        return Result(self.name, [ResultTable("pids", frame, tuple(map(ResultColumn, frame.columns)))])


KERNELS = [{"pid": pid, "name": f"k{pid}", "start_ns": pid, "end_ns": 10 * pid} for pid in (1, 2, 3)]


def write(path: Path, text: str) -> str:
    path.write_text(dedent(text))
    return str(path)


def test_every_built_in_tool_is_complete() -> None:
    for info in registry.listing():
        tool = registry.find(info.name)
        assert tool.name == info.name
        assert info.summary
        assert all(spec.help for spec in option_specs(tool.Options))


def test_names_of_nsys_reports_are_aliases() -> None:
    names = {
        alias: registry.find(alias).name for alias in ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "gpu_gaps")
    }
    assert names == {"cuda_gpu_kern_sum": "kernels", "cuda_api_sum": "api", "nvtx_sum": "ranges", "gpu_gaps": "gaps"}
    assert set(registry.ALIASES.values()) <= set(registry.names())


def test_an_unknown_tool_is_answered_with_the_nearest() -> None:
    with pytest.raises(PastaError, match="there is no tool 'kernel'; did you mean kernels"):
        registry.find("kernel")


def test_a_tool_from_a_file(tmp_path: Path) -> None:
    tool = registry.find(write(tmp_path / "longest.py", LONGEST))
    (spec,) = option_specs(tool.Options)
    assert (spec.flag, spec.type, spec.default, spec.help) == ("--count", int, 3, "how many to list")
    result = run(tool, trace_of(kernel=KERNELS), tool.Options(count=1))
    assert result.table("longest").frame.rows() == [("k3", 27)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines 0 tools; define exactly one"),
        ("import missing_module", "ModuleNotFoundError"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("from pasta.tools import Tool\nclass T(Tool):\n    name = 't'\n    run = print", "no summary"),
        ("from pasta.tools import *\nclass T(Tool):\n    name = summary = 't'\n    class Options(ToolOptions):\n"
         "        x: int = 1\n    run = print", "put @dataclass"),
    ],
)  # fmt: skip
def test_a_file_without_a_proper_tool_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(PastaError, match=message):
        registry.find(str(tmp_path / "mine.py"))


def test_a_missing_file() -> None:
    with pytest.raises(PastaError, match=r"there is no file nowhere/mine\.py"):
        registry.find("nowhere/mine.py")


def test_installed_tools_are_found_and_a_broken_one_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        [
            EntryPoint("pids", f"{__name__}:Pids", registry.ENTRY_POINTS),
            EntryPoint("broken", "no.such.module:Tool", registry.ENTRY_POINTS),
        ]
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    assert registry.find("pids") is Pids
    summaries = {info.name: info.summary for info in registry.listing()}
    assert summaries["pids"] == "processes"
    assert summaries["broken"].startswith("cannot be loaded")
    with pytest.raises(PastaError, match="failed to load"):
        registry.find("broken")


def test_option_types() -> None:
    @dataclass(frozen=True)
    class Good(ToolOptions):
        by_name: str | None = option(None, "a name", choices=("a", "b"))

    (spec,) = option_specs(Good)
    assert (spec.flag, spec.type, spec.optional, spec.choices) == ("--by-name", str, True, ("a", "b"))

    @dataclass(frozen=True)
    class Bad(ToolOptions):
        many: tuple[int, ...] = ()

    with pytest.raises(TypeError, match="cannot be a flag"):
        option_specs(Bad)


def parts_of(result: Result) -> list[tuple[int, int, str]]:
    return sorted(result.table("pids").frame.rows())


def test_a_tool_in_parts_gets_one_process_each() -> None:
    assert parts_of(run(Pids, trace_of(kernel=KERNELS))) == [(0, 1, "k1"), (1, 2, "k2"), (2, 3, "k3")]


def test_one_process_is_one_part() -> None:
    assert parts_of(run(Pids, trace_of(kernel=KERNELS[:1]))) == [(0, 1, "k1")]


def test_parts_are_filtered_too() -> None:
    filtered = run(Pids, trace_of(kernel=KERNELS), filters=Filters(kernel="k[13]"))
    assert parts_of(filtered) == [(0, 1, "k1"), (1, 3, "k3")]


def test_the_runner_adds_what_ran_what_was_filtered_and_what_was_lost() -> None:
    loss = [{"source": "cupti", "table": "kernel", "records": 3, "start_ns": 0}]
    trace = trace_of({"command": "./axpy 1000"}, kernel=KERNELS, loss=loss)
    result = run("kernels", trace, filters=Filters(kernel="k"))
    assert result.header == ["axpy", "only kernels matching k"]
    assert result.loss["records"].to_list() == [3]


def test_a_trace_without_the_tables_says_how_to_get_them() -> None:
    (finding,) = run("ops", trace_of(kernel=KERNELS)).findings
    assert finding.text == "ops needs op, which this trace does not have"
    assert finding.remedy == "record with -t op"


@pytest.mark.parametrize(
    ("manifest", "remedy"),
    [
        ({}, "record with --memory"),
        ({"import": {"label": "Kineto"}}, "the imported files have none"),
        ({"options": {"memory": "objects"}}, "recorded with --memory, but no backend saw any"),
    ],
)
def test_advice_depends_on_how_the_trace_was_made(manifest: dict[str, Any], remedy: str) -> None:
    (finding,) = run("coalescing", trace_of(manifest, kernel=KERNELS)).findings
    assert finding.remedy.startswith(remedy)


def test_filters_that_leave_nothing_say_so() -> None:
    (finding,) = run("kernels", trace_of(kernel=KERNELS), filters=Filters(kernel="zzz")).findings
    assert finding.text == "kernels found no kernel rows in kernels matching zzz"


def test_an_unknown_engine() -> None:
    with pytest.raises(PastaError, match="there is no engine 'spark'; use threads or dask"):
        run("kernels", trace_of(kernel=KERNELS), engine="spark")


def test_dask_is_asked_for_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PastaError, match=r"pip install 'pasta-profiler\[dask\]'"):
        run("kernels", trace_of(kernel=KERNELS), engine="dask")


def test_dask_workers_give_what_threads_give(tmp_path: Path) -> None:
    distributed: Any = pytest.importorskip("distributed")
    with TraceWriter(tmp_path / "t.pasta") as writer:
        writer.append("kernel", trace_of(kernel=KERNELS).table("kernel").collect())
    with (
        Trace.open(tmp_path / "t.pasta") as trace,
        distributed.LocalCluster(n_workers=2, processes=True, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        on_dask = run("kernels", trace, engine="dask", scheduler=cluster.scheduler_address)
        assert on_dask.tables[0].frame.equals(run("kernels", trace).tables[0].frame)
