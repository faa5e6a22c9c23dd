"""Print the results of a benchmark as a table in Markdown: a row a workload, the median of native, ratios to it.

    python scripts/bench/table.py scripts/bench/results/overhead.json
    python scripts/bench/table.py scripts/bench/results/memory_overhead.json floor     ratios to that variant
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def markdown(document: dict[str, Any], base: str = "native") -> str:
    """Return the table, and the circumstances of the run in a line below it; of workloads that ``base`` has."""
    measured = {row["workload"] for row in document["rows"] if row["variant"] == base}
    rows = {(row["workload"], row["variant"]): row for row in document["rows"] if row["workload"] in measured}
    workloads, variants = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
    others = sorted((v for v in variants if v != base), key=lambda v: (not v.startswith("pasta"), v))
    sized = [v for v in others if any("bytes_per_kernel" in row for (_, name), row in rows.items() if name == v)]
    lines = [_line(["workload", base, *others, *(f"bytes a kernel, {v}" for v in sized)])]
    lines.append(_line(["---", *["---:"] * (1 + len(others) + len(sized))]))
    for workload in workloads:
        first = rows.get((workload, base))
        cells = [workload, f"{first['median']:.3g} {first['unit']}" if first and first["n"] else "-"]
        cells += [_cell(rows.get((workload, v)), f"vs_{base}", "{:.3f}×") for v in others]  # noqa: RUF001
        cells += [_cell(rows.get((workload, v)), "bytes_per_kernel", "{:.1f}") for v in sized]
        lines.append(_line(cells))
    counts = sorted({row["n"] for row in rows.values()} - {0})
    lines += ["", f"Medians of {' or '.join(map(str, counts))}, {document['machine']}, commit {document['commit']}."]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(row: dict[str, Any] | None, column: str, form: str) -> str:
    if row is None or row.get(column) is None:
        return row["note"] if row is not None and not row["n"] else "-"
    return form.format(row[column])


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text()), *sys.argv[2:]))
