"""Run a tool on a trace: filters, missing tables, header and losses, and work in parts by threads or Dask."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pasta.errors import PastaError
from pasta.tools import describe, registry
from pasta.tools.base import Tool, TraceView
from pasta.tools.filters import FilteredTrace, Filters
from pasta.tools.result import Result

ENGINES = ("threads", "dask")


def run(
    tool: type[Tool] | str,
    trace: TraceView,
    options: Any = None,
    filters: Filters | None = None,
    *,
    engine: str = "threads",
    scheduler: str | None = None,
) -> Result:
    """Run ``tool`` on what ``filters`` leave of ``trace`` and complete its result with header and losses.

    ``options`` is an instance of the tool's ``Options`` (None: defaults). A tool that works in parts does so when
    the trace has several processes; ``engine="dask"`` sends the parts to the cluster at ``scheduler`` (None: one on
    this machine). A trace without the tables that the tool needs gives a result that says so. Raises `PastaError`.
    """
    if engine not in ENGINES:
        raise PastaError(f"there is no engine {engine!r}", f"use {' or '.join(ENGINES)}")
    kind = registry.find(tool) if isinstance(tool, str) else tool
    options = kind.Options() if options is None else options
    view = FilteredTrace(trace, filters)
    missing = sorted(name for name in kind.needs if name not in view.present)
    filtered = view.filters.describe()
    if missing:
        result = describe.no_data(kind.name, view, missing, filtered)
    else:
        result = _run(kind, view, trace, options, engine, scheduler)
    header = [*(result.header or describe.header(view)), *([f"only {filtered}"] if filtered else [])]
    loss = result.loss if result.loss.height else describe.losses(view)
    return dataclasses.replace(result, header=header, loss=loss)


def _run(
    tool: type[Tool], view: FilteredTrace, trace: TraceView, options: Any, engine: str, scheduler: str | None
) -> Result:
    if not tool.works_in_parts():
        return tool().run(view, options)
    pids = _processes(tool, view)
    if None in pids or (engine == "threads" and len(pids) < 2):
        return tool().run(view, options)
    work = partial(run_part, tool, _reopenable(trace) if engine == "dask" else trace, view.filters, options)
    parts = _on_dask(tool, work, pids, scheduler) if engine == "dask" else _on_threads(work, pids)
    return tool().combine(parts, options)


def run_part(tool: type[Tool], trace: TraceView | Path, filters: Filters, options: Any, pid: int | None) -> Any:
    """Reduce one process of a trace (or of the trace at a path, on a Dask worker) with ``tool.partial``."""
    if not isinstance(trace, Path):
        return tool().partial(FilteredTrace(trace, filters, pid), options)
    from pasta.trace import Trace

    with Trace.open(trace) as opened:
        return tool().partial(FilteredTrace(opened, filters, pid), options)


def _processes(tool: type[Tool], view: FilteredTrace) -> list[int | None]:
    """Return the processes that have rows in the tables that the tool needs."""
    parts = [view.table(name).select(pl.col("pid").unique()) for name in sorted(tool.needs)]
    return pl.concat(parts).unique().sort("pid").collect()["pid"].to_list() if parts else []


def _on_threads(work: Callable[[int | None], Any], pids: Sequence[int | None]) -> list[Any]:
    # polars has its own threads; two parts at a time keep them busy without holding many parts in memory.
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, pids))


def _on_dask(
    tool: type[Tool], work: Callable[[int | None], Any], pids: Sequence[int | None], scheduler: str | None
) -> list[Any]:
    try:
        distributed: Any = importlib.import_module("distributed")
        pickle: Any = importlib.import_module("cloudpickle")
    except ImportError as error:
        raise PastaError("the dask engine is not installed", "run: pip install 'pasta-profiler[dask]'") from error
    if tool.__module__.startswith(registry.FILE_MODULE):
        pickle.register_pickle_by_value(sys.modules[tool.__module__])  # workers cannot import the user's file
    try:
        client = distributed.Client(scheduler) if scheduler else distributed.Client(processes=True)
    except (OSError, ValueError) as error:
        raise PastaError(f"cannot reach the Dask scheduler at {scheduler}: {error}", "check --scheduler") from error
    with client:
        return list(client.gather(client.map(work, pids, pure=False)))


def _reopenable(trace: TraceView) -> TraceView | Path:
    """Return what a worker can open: the path of a trace, or a trace in memory itself."""
    path = getattr(trace, "path", None)
    return Path(os.path.abspath(path)) if path is not None else trace
