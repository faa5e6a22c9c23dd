"""Which kinds of memory instructions a recording of CUDA counted, which not, and how many kernels have them."""

from __future__ import annotations

from collections import Counter

import polars as pl

from pasta.tools.base import TraceView
from pasta.tools.result import ResultColumn, ResultTable

#: `build.log` of a module that was patched for the first time: this, and the kinds.
_INSTRUMENTED = "instrumented: "
#: Kinds of instructions in code whose patches have other names.
_PATCHES = {"generic": "global", "bulk_copy": "bulk_load"}
#: Kinds that only these parts of ``--memory`` count.
_NEEDS = {
    **dict.fromkeys(("shared", "remote_shared", "matrix", "async_store", "async_reduction"), "shared"),
    "local": "local",
}
#: Kinds for which the Sanitizer has no patch; of TMA stores it takes one that it does not call (13.5, measured).
_NO_PATCH = ("tma_store", "tma_reduction", "multimem", "texture", "surface")


def instruction_kinds(trace: TraceView) -> ResultTable | None:
    """Return a row for each kind of instruction that was counted or that measured kernels have; None without any."""
    logs = trace.table("build").select(pl.col("log").drop_nulls()).collect()["log"].to_list()
    modules = [log for log in logs if log.startswith(_INSTRUMENTED) or log == "not instrumented"]
    in_kernels = trace.manifest.get("instructions")
    known = in_kernels.items() if isinstance(in_kernels, dict) else ()
    kernels = {str(kind): n for kind, n in known if isinstance(n, int) and abs(n) < 1 << 62}
    if not modules and not kernels:
        return None
    patched = Counter(kind for log in modules for kind in log.partition(_INSTRUMENTED)[2].split())
    losses = trace.table("loss").select(pl.col("cause").drop_nulls().unique()).collect()["cause"].to_list()
    names = [*patched, *(kind for kind in sorted(kernels) if kind not in patched)]
    refused = {cause.partition(" instructions cannot be patched")[0]: cause for cause in losses if "patched" in cause}
    refused = {kind.removeprefix("memory pass: "): cause for kind, cause in refused.items()}
    names += [kind for kind in sorted(refused) if kind not in names and " " not in kind]
    rows = []
    for kind in names:
        count = patched[_PATCHES.get(kind, kind)]
        why = None
        if count < len(modules) or not count:
            why = refused.get(kind) or _why_not(kind, trace, count)
        counted = "no" if not count else "yes" if count >= len(modules) else "in part"
        rows.append((kind, counted, count if modules else None, kernels.get(kind), why))
    schema = {"kind": pl.String, "counted": pl.String, "modules": pl.Int64, "kernels": pl.Int64, "why": pl.String}
    columns = (
        ResultColumn("kind", key=True),
        ResultColumn("counted"),
        ResultColumn("modules", "count", "modules patched"),
        ResultColumn("kernels", "count", "kernels that have them"),
        ResultColumn("why", title="why not"),
    )
    note = f"{len(modules)} modules were to be patched"
    note += "" if kernels else "; which kernels have them is known where --memory has sites"
    frame = pl.DataFrame(rows, schema, orient="row")
    return ResultTable("instructions", frame, columns, title="Memory instructions of CUDA kernels", note=note)


def _why_not(kind: str, trace: TraceView, count: int) -> str:
    if kind in _NO_PATCH:
        return "the Sanitizer cannot patch them"
    options = trace.manifest.get("options")
    asked = str(options.get("memory") or "") if isinstance(options, dict) else ""
    needs = _NEEDS.get(kind)
    if needs is not None and not {needs, "all"} & set(asked.split(",")) and not count:
        return f"not asked for: --memory={needs}"
    return "modules that could not be patched, see the losses"
