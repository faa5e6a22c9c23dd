"""What the benchmarks share: interleaved processes, medians, ratios within one run, one JSON shape.

    {machine, commit, date, rows: [{workload, variant, unit, n, min, median, max, vs_native, vs_floor, ...}]}
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PASTA = [sys.executable, "-m", "pasta"]


@dataclass
class Variant:
    """One way to run the workloads: what stands before the command, what is set, what the program itself does."""

    name: str
    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    # Further columns of a workload, for example bytes_per_kernel, when a process has measured it.
    after: Callable[[str], Mapping[str, float]] | None = None


@dataclass
class Samples:
    """Values of one (workload, variant), and its further columns."""

    unit: str
    values: list[float] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)


def environment(variant: Variant) -> dict[str, str]:
    """Return the environment of a variant: this one without anything of pasta's, and its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PASTA_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return clean | {"PYTHONPATH": path} | variant.environment


def run_interleaved(
    command: Sequence[str], variants: Sequence[Variant], repetitions: int
) -> dict[tuple[str, str], Samples]:
    """Run ``command`` under each variant in turn, ``repetitions`` times; it prints one JSON line a measurement:

    ``{"workload": NAME, "unit": UNIT, "value": NUMBER}``. A process that fails is reported; what it measured counts.
    """
    samples: dict[tuple[str, str], Samples] = {}
    for repetition in range(repetitions):
        for variant in variants:
            began = time.monotonic()
            result = subprocess.run(
                [*variant.prefix, *command, *variant.arguments],
                env=environment(variant), capture_output=True, text=True, timeout=600,
            )  # fmt: skip
            if result.returncode != 0:
                print(f"{variant.name} failed:\n{result.stderr[-1500:]}", file=sys.stderr)
            measured = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"workload"')]
            for row in measured:
                entry = samples.setdefault((row["workload"], variant.name), Samples(row["unit"]))
                entry.values.append(row["value"])
                entry.extra |= {k: v for k, v in row.items() if k not in ("workload", "unit", "value")}
            if variant.after is not None:
                for workload in {row["workload"] for row in measured}:
                    samples[workload, variant.name].extra |= variant.after(workload)
            print(
                f"[{repetition + 1}/{repetitions}] {variant.name:24} {time.monotonic() - began:6.1f} s", file=sys.stderr
            )
    return samples


def to_rows(samples: Mapping[tuple[str, str], Samples]) -> list[dict[str, object]]:
    """Return the table of results: medians, and their ratios to the same workload's native and floor."""
    medians = {key: statistics.median(entry.values) for key, entry in samples.items()}

    def ratio(workload: str, variant: str, base: str) -> float | None:
        reference = medians.get((workload, base))
        return round(medians[workload, variant] / reference, 4) if reference else None

    return [
        {
            "workload": workload,
            "variant": variant,
            "unit": entry.unit,
            "n": len(entry.values),
            "min": round(min(entry.values), 4),
            "median": round(medians[workload, variant], 4),
            "max": round(max(entry.values), 4),
            "vs_native": ratio(workload, variant, "native"),
            "vs_floor": ratio(workload, variant, "floor"),
            **{name: round(value, 3) for name, value in entry.extra.items()},
        }
        for (workload, variant), entry in sorted(samples.items())
    ]


def report(rows: Sequence[Mapping[str, object]], machine: str, output: Path | None) -> None:
    """Print the table, and write it with its circumstances to ``output``.

    Rows of other workloads that are there, of the same machine and commit, stay: a long benchmark may run in parts.
    """
    numbers = f"{'median':>10} {'min':>10} {'max':>10} {'unit':10} {'native':>7} {'floor':>7}"
    print(f"{'workload':18} {'variant':24} {numbers}")
    for row in rows:
        ratios = [f"{row[k]:7.3f}" if row[k] is not None else "      -" for k in ("vs_native", "vs_floor")]
        print(
            f"{row['workload']:18} {row['variant']:24} {row['median']:10.3f} {row['min']:10.3f} {row['max']:10.3f} "
            f"{row['unit']:10} {' '.join(ratios)}"
        )
    if output is not None:
        head = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(head, capture_output=True, text=True, cwd=ROOT).stdout
        document = {
            "machine": machine,
            "commit": commit.strip(),
            "date": time.strftime("%Y-%m-%d"),
            "rows": list(rows),
        }
        before = json.loads(output.read_text()) if output.exists() else {}
        if all(before.get(key) == document[key] for key in ("machine", "commit")):
            ours = {row["workload"] for row in rows}
            document["rows"] = [row for row in before["rows"] if row["workload"] not in ours] + list(rows)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written to {output}", file=sys.stderr)


def compare_on_gpu(
    description: str, worker: str, workloads: str, variants: Callable[[Path], list[Variant]], results: str
) -> None:
    """Be the ``main`` of a GPU benchmark: run the ``workloads`` of the script ``worker`` under ``variants(folder)``.

    ``results`` names the file in results/ that the rows go to by default. Rounds times repeat is the `n` of a row.
    """
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="processes of each variant")
    parser.add_argument("--repeat", type=int, default=4, help="measurements of a workload a process")
    parser.add_argument("--workloads", default=workloads)
    parser.add_argument("--variants", default="", help="a comma list; default: all")
    parser.add_argument("-o", "--output", type=Path, default=here / "results" / results)
    options = parser.parse_args()
    import torch

    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        chosen = [v for v in variants(Path(folder)) if not options.variants or v.name in options.variants.split(",")]
        arguments = ["--workloads", options.workloads, "--repeat", str(options.repeat)]
        samples = run_interleaved([sys.executable, str(here / worker), *arguments], chosen, options.rounds)
    report(to_rows(samples), f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}", options.output)


def cpu_name() -> str:
    """Return the processor's name and the number of cores."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{os.uname().machine}, {os.cpu_count()} cores"
