"""Make one trace of two recordings of a program: a timing pass and a memory pass (see ``join``)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from pasta.schema import TABLES
from pasta.trace.container import as_dict, as_list
from pasta.trace.join import CARRIED, MEASURED, NEEDED, Joined, Matched, join
from pasta.trace.seal import Summary, sum_up_losses, trace_size
from pasta.trace.trace import Trace
from pasta.trace.writer import Form, TraceWriter


def join_passes(timing: Path, memory: Path, form: Form = "file") -> tuple[Summary, str]:
    """Put the accesses that the trace ``memory`` measured into the trace ``timing``, in its place.

    Returns what was written, and a line that says how much of both is the same.

    Raises ``PastaError`` as ``Trace.open`` and ``TraceWriter`` do; ``timing`` is then as it was.
    """
    with Trace.open(timing) as ours, Trace.open(memory) as theirs:
        joined = join(_tables(ours, NEEDED), _tables(theirs, (*NEEDED, *CARRIED, *MEASURED)))
        with TraceWriter(timing, form, overwrite=True) as writer:
            for name in TABLES:
                if name in joined.replaced:
                    writer.append(name, joined.replaced[name])
                else:
                    for frame in ours.batches(name):
                        writer.append(name, frame)
                if name in joined.added:
                    writer.append(name, joined.added[name])
            losses = pl.concat([ours.loss.collect(), *([joined.added["loss"]] if "loss" in joined.added else [])])
            writer.manifest = _manifest(ours.manifest, theirs.manifest, joined, sum_up_losses(losses))
    summary = Summary(
        path=timing,
        bytes=trace_size(timing),
        rows=dict(writer.rows),
        time_span_ns=writer.time_span_ns,
        losses=writer.manifest["losses"],
        notes=[str(note) for note in as_list(writer.manifest.get("notes"))],
    )
    return summary, _sentence(joined.launches)


def _sentence(launches: Matched) -> str:
    text = f"{launches.both} launches are the same in both passes"
    if launches.timing_only or launches.memory_only:
        text += f"; the program did not repeat itself: {launches.timing_only} of the timing pass"
        text += f" and {launches.memory_only} of the memory pass have no equal"
    return text


def _tables(trace: Trace, names: tuple[str, ...]) -> dict[str, pl.DataFrame]:
    return {name: trace.table(name).collect() for name in names}


def _manifest(
    timing: dict[str, Any], memory: dict[str, Any], joined: Joined, losses: list[dict[str, Any]]
) -> dict[str, Any]:
    options = as_dict(memory.get("options"))
    measured = {name: value for name, value in options.items() if name in ("memory", "sample", "memory_buffer")}
    return {
        **timing,
        "options": {**as_dict(timing.get("options")), **measured},
        "backends": {**as_dict(memory.get("backends")), **as_dict(timing.get("backends"))},
        **{name: memory[name] for name in ("instructions",) if name in memory},
        "losses": losses,
        "passes": {
            name: asdict(matched)
            for name, matched in (
                ("launches", joined.launches), ("objects", joined.objects), ("tensors", joined.tensors),
            )
        },
    }  # fmt: skip
