"""Record a program in two passes: run it once for times, once for memory accesses, and join what both left."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pasta.errors import PastaError
from pasta.inject.options import MEMORY_DEFAULT, RecordOptions
from pasta.inject.output import is_per_process
from pasta.inject.recording import Form, Recorded, Recording

#: Variables that would turn measuring memory on in the timing pass.
_MEMORY_VARIABLES = ("PASTA_MEMORY", "PASTA_SAMPLE", "PASTA_MEMORY_BUFFER")


def check_passes(text: str) -> None:
    """Raise ``PastaError`` unless ``text``, the value of ``--passes``, names both passes."""
    if sorted(text.split(",")) != ["memory", "timing"]:
        raise PastaError(f"--passes={text} is not understood", "it takes timing,memory; --memory alone is one pass")


def record_passes(
    command: Sequence[str],
    options: RecordOptions,
    *,
    form: Form = "file",
    device: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Recorded:
    """Run ``command`` for times and again for memory accesses; return one trace of both.

    When the first run fails or is interrupted there is no second one, and the trace has times only. The status is
    that of the last run. Raises ``PastaError`` as ``Recording.run``, and when the traces could not be told apart.
    """
    if "trace" in (options.memory or "").split(","):
        raise PastaError("--memory=trace keeps addresses, which mean nothing in another run", "record it by itself")
    if is_per_process(options.output):
        raise PastaError("--passes joins one trace a run", "name an --output without %p, %r, %l and %q")
    added = dict(environment or {})
    timing = Recording(
        command,
        replace(options, memory=None, sample=None, memory_buffer=None),
        form=form,
        device=device,
        environment={**added, **{name: "" for name in _MEMORY_VARIABLES if name in os.environ or name in added}},
    )
    first = timing.launch()
    # Both run before anything is sealed: that starts threads, and a program is not forked from a process with threads.
    if first.ended.status != 0 or first.ended.interrupted or timing.output is None:
        first.notes.append("the program did not end well: it was not run again, memory accesses were not measured")
        return timing.seal(first)
    output = timing.output.with_name(f"{timing.output.name}.memory")
    memory = Recording(
        command,
        replace(
            options, output=str(output).replace("%", "%%"), force=True, memory=options.memory or MEMORY_DEFAULT
        ),
        device=device,
        environment=added,
    )
    try:
        second = memory.launch()
    except BaseException:
        timing.seal(first)
        raise
    timing.seal(first)
    memory.seal(second)
    return _joined(first, second, form)


def _joined(first: Recorded, second: Recorded, form: Form) -> Recorded:
    from pasta.trace.passes import join_passes

    notes = list(dict.fromkeys([*first.notes, *second.notes]))
    recorded = Recorded(second.ended, first.seconds + second.seconds, notes=notes)
    if len(first.traces) != 1 or len(second.traces) != 1:
        recorded.traces = [*first.traces, *second.traces]
        recorded.notes.append("the passes are not joined: not both left one trace")
        return recorded
    summary, matched = join_passes(first.traces[0].path, second.traces[0].path, form)
    second.traces[0].path.unlink()
    recorded.traces = [summary]
    recorded.notes.append(matched)
    return recorded
