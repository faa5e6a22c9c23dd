"""What the benchmarks share: interleaved processes, medians, ratios within one run, one JSON shape.

    {machine, commit, date, rows: [{workload, variant, unit, n, min, median, max, vs_native, vs_floor, ...}]}

What did not finish or failed has a row of n = 0 without numbers, and a note.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED = "was interrupted"
PASTA = [sys.executable, "-m", "pasta"]


@dataclass
class Variant:
    """One way to run the workloads: what stands before the command, what is set, what the program itself does."""

    name: str
    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    # Further columns of a workload, for example bytes_per_kernel, when a process measured it and ended as it should.
    after: Callable[[str], Mapping[str, float]] | None = None
    workloads: frozenset[str] | None = None  # those that it is for; None: all
    timeout_s: float = 600  # for a process
    # Analyses what a process has recorded; the seconds it takes are shared out among what that process measured.
    analyse: Callable[[], None] | None = None


@dataclass
class Samples:
    """Values of one (workload, variant), and its further columns."""

    unit: str
    values: list[float] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)
    note: str = ""  # why there are no values


def environment(variant: Variant) -> dict[str, str]:
    """Return the environment of a variant: this one without anything of pasta's, and its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PASTA_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return clean | {"PYTHONPATH": path} | variant.environment


def run_limited(command: Sequence[str], variables: Mapping[str, str], timeout_s: float) -> tuple[str, str, str]:
    """Run ``command``; end it and all that it started after ``timeout_s``, or at an interrupt. Returns its two outputs,
    and what went wrong or nothing."""
    process = subprocess.Popen(
        command, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as end:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        timed_out = isinstance(end, subprocess.TimeoutExpired)
        return output, errors, f"did not finish in {timeout_s:.0f} s" if timed_out else INTERRUPTED
    return output, errors, f"failed with status {process.returncode}" if process.returncode else ""


def run_interleaved(
    command: Sequence[str], variants: Sequence[Variant], repetitions: int, workloads: Sequence[str] = ()
) -> dict[tuple[str, str], Samples]:
    """Run ``command`` under each variant in turn, ``repetitions`` times; it prints one JSON line a measurement:

    ``{"workload": NAME, "unit": UNIT, "value": NUMBER}``. With ``workloads`` it is told those that the variant is for,
    ``--workloads a,b``. What a process that fails or does not finish has measured counts; the rest gets a note. An
    interrupt ends the benchmark with what it has.
    """
    samples: dict[tuple[str, str], Samples] = {}
    for repetition in range(repetitions):
        for variant in variants:
            place = f"[{repetition + 1}/{repetitions}]"
            if run_once(command, variant, place, workloads, samples) == INTERRUPTED:
                return samples
    return samples


def run_once(
    command: Sequence[str],
    variant: Variant,
    place: str,
    workloads: Sequence[str],
    samples: dict[tuple[str, str], Samples],
) -> str:
    """Run ``command`` under one variant and add what it measures to ``samples``; ``place`` begins the line about it.

    Returns what went wrong, or nothing.
    """
    chosen = [w for w in workloads if variant.workloads is None or w in variant.workloads]
    if workloads and not chosen:
        return ""
    began = time.monotonic()
    told = ["--workloads", ",".join(chosen)] if chosen else []
    output, errors, wrong = run_limited(
        [*variant.prefix, *command, *told, *variant.arguments], environment(variant), variant.timeout_s
    )
    measured = [json.loads(line) for line in output.splitlines() if line.startswith('{"workload"')]
    if measured and variant.analyse is not None:
        try:
            add_analysis(measured, variant.analyse)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            measured, wrong, errors = [], "was not analysed", str(error)
    if wrong:
        print(f"{variant.name} {wrong}:\n{errors[-1500:]}", file=sys.stderr)
    for row in measured:
        entry = samples.setdefault((row["workload"], variant.name), Samples(row["unit"]))
        entry.unit = row["unit"]
        entry.values.append(row["value"])
        entry.extra |= {k: v for k, v in row.items() if k not in ("workload", "unit", "value")}
    names = {row["workload"] for row in measured}
    if variant.after is not None and not wrong:
        for workload in names:
            samples[workload, variant.name].extra |= variant.after(workload)
    for workload in chosen:
        if workload not in names:
            samples.setdefault((workload, variant.name), Samples("")).note = wrong or "was not measured"
    took = f"{place} {variant.name:24} {time.monotonic() - began:6.1f} s"
    medians = (
        f"{name} {statistics.median(row['value'] for row in measured if row['workload'] == name):.4g}"
        for name in sorted(names)
    )
    print(f"{took}  {', '.join(medians)}", file=sys.stderr, flush=True)
    return wrong


def add_analysis(measured: Sequence[dict[str, Any]], analyse: Callable[[], None]) -> None:
    """Add to the values what ``analyse`` takes for each of them; the column ``analysis`` has it alone."""
    began = time.monotonic()
    analyse()
    seconds = (time.monotonic() - began) / len(measured)
    for row in measured:
        row["analysis"] = seconds * (1e6 if row["unit"].startswith("us") else 1e3)
        row["value"] += row["analysis"]


def to_rows(samples: Mapping[tuple[str, str], Samples]) -> list[dict[str, object]]:
    """Return the table of results: medians, and their ratios to the same workload's native and floor."""
    medians = {key: statistics.median(entry.values) for key, entry in samples.items() if entry.values}

    def ratio(workload: str, variant: str, base: str) -> float | None:
        reference = medians.get((workload, base))
        return round(medians[workload, variant] / reference, 4) if reference else None

    rows: list[dict[str, object]] = []
    for (workload, variant), entry in sorted(samples.items()):
        row: dict[str, object] = {"workload": workload, "variant": variant, "n": len(entry.values)}
        if entry.values:
            row |= {
                "unit": entry.unit,
                "min": round(min(entry.values), 4),
                "median": round(medians[workload, variant], 4),
                "max": round(max(entry.values), 4),
                "vs_native": ratio(workload, variant, "native"),
                "vs_floor": ratio(workload, variant, "floor"),
                **{name: round(value, 3) for name, value in entry.extra.items()},
            }
        else:
            row["note"] = entry.note
        rows.append(row)
    return rows


def report(rows: Sequence[Mapping[str, object]], machine: str, output: Path | None) -> None:
    """Print the table, and write it with its circumstances to ``output``.

    Rows of other workloads that are there, of the same machine and commit, stay: a long benchmark may run in parts.
    """
    numbers = f"{'median':>10} {'min':>10} {'max':>10} {'unit':10} {'native':>7} {'floor':>7}"
    print(f"{'workload':18} {'variant':24} {numbers}")
    for row in rows:
        if not row["n"]:
            print(f"{row['workload']:18} {row['variant']:24} {row['note']}")
            continue
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
    description: str,
    worker: str,
    workloads: str,
    variants: Callable[[Path, argparse.Namespace], list[Variant]],
    results: str,
    options: argparse.ArgumentParser | None = None,
) -> None:
    """Be the ``main`` of a GPU benchmark: run the ``workloads`` of the script ``worker`` under the variants.

    ``variants`` gets a folder, and the parsed command line with the benchmark's own ``options``. ``results`` names the
    file in results/ that the rows go to by default. Rounds times repeat is the `n` of a row.
    """
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[] if options is None else [options],
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=2, help="processes of each variant")
    parser.add_argument("--repeat", type=int, default=4, help="measurements of a workload a process")
    parser.add_argument("--workloads", default=workloads)
    parser.add_argument("--variants", default="", help="a comma list; default: all")
    parser.add_argument("-o", "--output", type=Path, default=here / "results" / results)
    given = parser.parse_args()
    for ends in (signal.SIGINT, signal.SIGTERM):  # whatever a shell made of them
        signal.signal(ends, signal.default_int_handler)
    import torch

    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        found = variants(Path(folder), given)
        chosen = [v for v in found if not given.variants or v.name in given.variants.split(",")]
        command = [sys.executable, str(here / worker), "--repeat", str(given.repeat)]
        samples = run_interleaved(command, chosen, given.rounds, given.workloads.split(","))
    machine = torch.cuda.get_device_name(0) if torch.cuda.is_available() else cpu_name()
    report(to_rows(samples), f"{machine}, CUDA {torch.version.cuda}", given.output)


def cpu_name() -> str:
    """Return the processor's name and the number of cores."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{os.uname().machine}, {os.cpu_count()} cores"
