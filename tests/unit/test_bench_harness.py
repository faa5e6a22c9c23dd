"""The benchmarks' harness: what a process measured counts, whatever becomes of it; the rest is said to be missing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))

from harness import Variant, run_interleaved, run_limited, to_rows

#: Measures the workloads that it is told, up to one that is "broken".
WORKER = """
import json, sys
for name in sys.argv[sys.argv.index("--workloads") + 1].split(","):
    if name == "broken":
        sys.exit(3)
    print(json.dumps({"workload": name, "unit": "ms/step", "value": 2.0}), flush=True)
"""


def rows(variants: list[Variant], workloads: list[str]) -> dict[tuple[object, object], dict[str, object]]:
    samples = run_interleaved([sys.executable, "-c", WORKER], variants, 1, workloads)
    return {(row["workload"], row["variant"]): row for row in to_rows(samples)}


def test_a_process_is_ended_with_all_that_it_started() -> None:
    """What the second process holds open would be waited for otherwise."""
    output, _, wrong = run_limited(["sh", "-c", "sleep 600 & echo $!; wait"], {"PATH": os.defpath}, 1)
    assert wrong == "did not finish in 1 s"
    deadline = time.monotonic() + 30
    while is_running(int(output)):
        assert time.monotonic() < deadline


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX"  # a zombie where nobody reaps orphans
    except OSError:
        return False


def test_what_was_measured_before_the_end_counts() -> None:
    found = rows([Variant("bad")], ["quick", "broken", "later"])
    assert found["quick", "bad"]["median"] == 2.0
    assert found["later", "bad"] == {"workload": "later", "variant": "bad", "n": 0, "note": "failed with status 3"}
    assert found["broken", "bad"]["note"] == "failed with status 3"


def test_a_variant_is_run_for_its_workloads_only() -> None:
    found = rows([Variant("native"), Variant("few", workloads=frozenset(["b"]))], ["a", "b"])
    assert set(found) == {("a", "native"), ("b", "native"), ("b", "few")}
    assert found["b", "few"]["vs_native"] == 1.0


@pytest.mark.parametrize("fails", [False, True])
def test_analysis_is_part_of_the_time(fails: bool) -> None:
    def analyse() -> None:
        if fails:
            raise subprocess.CalledProcessError(1, "analyse")

    row = rows([Variant("raw", analyse=analyse)], ["a"])["a", "raw"]
    if fails:
        assert (row["n"], row["note"]) == (0, "was not analysed")
    else:
        assert isinstance(row["analysis"], float)
        assert row["median"] == pytest.approx(2 + row["analysis"], abs=0.01)
