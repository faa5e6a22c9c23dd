"""``import_files``: other profilers' files in, one sealed trace out, with a statement of all that was left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pasta.errors import PastaError
from pasta.importers.base import Importer, ImportSummary, Kind, Progress, Report, Sink, nothing_to_import
from pasta.importers.detect import files_in, importer_of, sniff
from pasta.importers.packed import Source, scratch
from pasta.trace import TraceWriter

#: Endings that a trace's default name drops.
_ENDINGS = (".gz", ".json", ".pt.trace", ".trace", ".sqlite", ".db", ".rpd", ".csv", ".pb", ".xplane", ".pftrace")


def import_files(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    kind: Kind | None = None,
    form: Literal["file", "dir"] = "file",
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
) -> ImportSummary:
    """Import ``paths``, files or directories of one format, into the trace ``output`` and return what was done.

    Several files are one trace: ranks of a job, or the CSV files of one run. ``kind`` overrides detection by content.
    Without ``output`` the trace is named after the first path and put in the current directory. Raises ``PastaError``,
    and leaves nothing behind, for files that pasta cannot read, of different formats, or that hold nothing.
    """
    given = [Path(path) for path in paths]
    if not given:
        raise PastaError("no file to import", "name one or more files, or a directory")
    output = Path(output) if output is not None else Path(default_name(given[0]))
    with scratch(output.parent) as folder:
        importer, sources = _gather(given, folder, kind)
        _report_progress(sources, progress)
        report = Report()
        with TraceWriter(output, form, overwrite=overwrite) as writer:
            sink = Sink(writer, report)
            importer.read(sources, sink, report)
            sink.flush()
            if not sink.rows:
                raise nothing_to_import(sources, f"{importer.label} without events that pasta knows", "")
            sink.append("loss", _losses(report))
            sink.append("clock", _clock(report))
            writer.manifest.update(_manifest(importer, sources, report))
    return ImportSummary(
        output=output,
        kind=importer.kind,
        version=report.version,
        rows=dict(sink.rows),
        unplaced=dict(report.unplaced),
        skipped=dict(report.skipped),
        unmatched=dict(report.unmatched),
        notes=tuple(report.notes),
    )


def default_name(path: Path) -> str:
    """Return the name of the trace for the input ``path``."""
    stem = path.resolve().name or "import"
    shortened = True
    while shortened:
        shortened = False
        for ending in _ENDINGS:
            if stem.lower().endswith(ending) and len(stem) > len(ending):
                stem = stem[: -len(ending)]
                shortened = True
    return f"{stem}.pasta"


def _gather(paths: Sequence[Path], folder: Path, kind: Kind | None) -> tuple[Importer, list[Source]]:
    sources: list[Source] = []
    kinds: Counter[Kind] = Counter()
    refused: list[PastaError] = []
    for path in paths:
        within = path.is_dir()
        for file in files_in(path) if within else (path,):
            source = Source.of(file, folder)
            try:
                found = sniff(source) if within or kind is None else kind
            except PastaError as error:
                if not within:
                    raise
                refused.append(error)  # a directory holds other things than traces too
                continue
            if kind in (None, found):
                sources.append(source)
                kinds[found] += 1
    if not sources:
        if len(refused) == 1:
            raise refused[0]
        names = ", ".join(map(str, paths))
        raise PastaError(f"nothing to import in {names}", "name files of a format that pasta imports")
    if len(kinds) > 1:
        held = ", ".join(f"{found.value} ({count})" for found, count in kinds.items())
        raise PastaError(f"the files have different formats: {held}", "import one at a time, or name it with --from")
    return importer_of(next(iter(kinds))), sources


def _report_progress(sources: Sequence[Source], progress: Progress | None) -> None:
    if progress is None:
        return
    size = sum(source.size for source in sources)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done = min(done + count, size)
        progress(done, size)

    for source in sources:
        source.tick = tick


def _losses(report: Report) -> pl.DataFrame:
    columns = {"start_ns": pl.Int64, "table": pl.String, "records": pl.Int64, "cause": pl.String, "remedy": pl.String}
    return pl.DataFrame(report.losses, schema=columns).with_columns(source=pl.lit("import"))


def _clock(report: Report) -> pl.DataFrame:
    if report.epoch_ns is None:
        return pl.DataFrame()
    return pl.DataFrame({"start_ns": [0], "source": ["realtime"], "source_ns": [report.epoch_ns]})


def _manifest(importer: Importer, sources: Sequence[Source], report: Report) -> dict[str, Any]:
    files = [{"name": s.path.name, "bytes": s.size, "sha256": s.digest()} for s in sources]
    return {
        "import": {
            "kind": importer.kind.value,
            "label": importer.label,
            "version": report.version,
            "files": files,
            "source": report.source,
            "epoch_ns": report.epoch_ns,
            "resolution_ns": report.resolution_ns,
            "unplaced": dict(report.unplaced.most_common()),
            "skipped": dict(report.skipped.most_common()),
            "unmatched": dict(report.unmatched.most_common()),
            "notes": report.notes,
        }
    }
