"""Overhead of --memory on OpenCL: each reducer, the usual three together, a sample, and every access shipped.

    python scripts/bench/opencl_memory_overhead.py [--rounds 5] [--repeat 3] [-o results/opencl_memory_overhead.json]

Times are those of the program's own loops, reading the counts included. `all` is objects,sites,lines; `sample3` the
same with --sample 3, over 100 launches; `trace` ships every access to the host, which reduces the trace there and then,
over 5 launches. `vs_trace` says how often a variant's cost (its median's distance from native's) goes into that of
`trace`. `counted` is the rows of counts of the last process, `lost` what found no room: a run with none of the first,
or any of the second, fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from harness import PASTA, ROOT, Variant, cpu_name, report, run_interleaved, to_rows

HERE = Path(__file__).parent
TRACE_LAUNCHES = 5
WORKLOADS = ("vector_add", "matmul", "reduce", "transpose_naive", "transpose_tiled", "sort")


def variants(folder: Path) -> list[Variant]:
    """Return native and everything that --memory can do on OpenCL."""
    from pasta.inject.icd import cpu_device_variables
    from pasta.inject.options import MEMORY_REDUCERS
    from pasta.trace import Trace

    icd, _ = cpu_device_variables([sys.executable], os.environ, wanted="OCL_ICD_VENDORS" not in os.environ)

    def pasta(name: str, reducers: str, *options: str, **attributes: Any) -> Variant:
        trace = folder / f"{name}.pasta"

        def found(workload: str) -> dict[str, float]:
            with Trace.open(trace) as opened:
                tables = ("access_object", "access_site", "access_block")
                return {
                    "counted": sum(opened.manifest["rows"].get(table, 0) for table in tables),
                    "lost": opened.table("loss").collect()["records"].fill_null(1).sum(),
                }

        prefix = [*PASTA, "record", "-q", "-f", "-o", str(trace), f"--memory={reducers}", *options, "--"]
        return Variant(name, prefix, icd, after=found, **attributes)

    # `shared` alone adds nothing to nothing.
    single = ["sites,shared" if name == "shared" else name for name in MEMORY_REDUCERS if name != "trace"]
    few = ["--launches", str(TRACE_LAUNCHES)]
    return [
        Variant("native", environment=icd),
        *(pasta(name, name) for name in single),
        pasta("all", "objects,sites,lines"),
        pasta("sample3", "objects,sites,lines", "--sample=3"),
        # A launch takes room for as many accesses as one may make: little for those of the sort, which make few.
        pasta("trace", "trace", arguments=few, workloads=frozenset(WORKLOADS) - {"sort"}),
        pasta("trace", "trace", "--memory-buffer=64M", arguments=few, workloads=frozenset({"sort"})),
    ]


def add_goals(rows: list[dict[str, object]]) -> str:
    """Add ``vs_trace`` to the rows; return what they say about the goals."""

    def of(variant: str, column: str) -> dict[str, float]:
        return {str(r["workload"]): float(str(r[column])) for r in rows if r["variant"] == variant and r["n"]}

    native, trace = of("native", "median"), of("trace", "median")
    for row in rows:
        workload = str(row["workload"])
        if row["n"] and workload in trace and row["variant"] != "native":
            cost = max(float(str(row["median"])) - native[workload], 1e-3)
            row["vs_trace"] = round((trace[workload] - native[workload]) / cost, 2)
    said = []
    for variant, column, text in (
        ("all", "vs_native", "all: {0:.2f}x at the median, {1:.2f}x at worst (goals: 4, 8)"),
        ("sample3", "vs_native", "sample3: {0:.2f}x at the median, {1:.2f}x at worst (goal: 1.3)"),
        ("all", "vs_trace", "all costs {0:.0f} times less than trace at the median (goal: 50)"),
    ):
        values = of(variant, column).values()
        if values:
            said.append(text.format(median(values), max(values)))
    return "\n".join(said)


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each variant")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of a workload a process")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--variants", default="", help="a comma list; default: all")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "opencl_memory_overhead.json")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    command = [sys.executable, str(HERE / "opencl_memory_workloads.py"), "--repeat", str(options.repeat)]
    with tempfile.TemporaryDirectory() as folder:
        chosen = [v for v in variants(Path(folder)) if not options.variants or v.name in options.variants.split(",")]
        rows = to_rows(run_interleaved(command, chosen, options.rounds, options.workloads.split(",")))
    said = add_goals(rows)
    report(rows, cpu_name(), options.output)
    print(said)
    wrong = {str(r["variant"]) for r in rows if r.get("counted") == 0 or r.get("lost", 0) != 0}
    if wrong:
        sys.exit(f"{', '.join(sorted(wrong))}: nothing was counted, or something was lost")


if __name__ == "__main__":
    main()
