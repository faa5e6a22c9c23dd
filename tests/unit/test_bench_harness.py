"""The benchmarks' harness: what a process measured counts, whatever becomes of it; the rest is said to be missing."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))

from harness import Variant, run_interleaved, run_limited, to_rows
from table import markdown

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


def test_what_a_broken_process_left_has_no_further_columns() -> None:
    variant = Variant("sized", after=lambda workload: {"bytes_per_kernel": 8.0})
    assert rows([variant], ["quick"])["quick", "sized"]["bytes_per_kernel"] == 8.0
    assert "bytes_per_kernel" not in rows([variant], ["quick", "broken"])["quick", "sized"]


def test_a_variant_is_run_for_its_workloads_only() -> None:
    found = rows([Variant("native"), Variant("few", workloads=frozenset(["b"]))], ["a", "b"])
    assert set(found) == {("a", "native"), ("b", "native"), ("b", "few")}
    assert found["b", "few"]["vs_native"] == 1.0


def test_an_interrupt_ends_it_with_what_was_measured(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    program = f"""
import sys
sys.path.append({str(Path(__file__).parents[2] / "scripts" / "bench")!r})
from harness import Variant, run_interleaved, to_rows
worker = {WORKER!r} + "import time; open({str(printed)!r}, 'w').close(); time.sleep(600)"
samples = run_interleaved([sys.executable, "-c", worker], [Variant("first"), Variant("second")], 1, ["a"])
print(to_rows(samples))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not printed.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [(row["variant"], row["n"]) for row in ast.literal_eval(output)] == [("first", 1)]


def test_a_table_has_the_workloads_of_its_base() -> None:
    row = {"unit": "ms", "n": 1, "median": 4.0, "vs_native": 2.0, "vs_floor": 1.5}
    names = [("a", "native"), ("a", "floor"), ("a", "objects"), ("b", "native"), ("b", "sample3")]
    document = {"rows": [row | {"workload": w, "variant": v} for w, v in names], "machine": "M", "commit": "c"}
    assert markdown(document, "floor").splitlines() == [
        "| workload | floor | native | objects |",
        "| --- | ---: | ---: | ---: |",
        "| a | 4 ms | 1.500× | 1.500× |",  # noqa: RUF001
        "",
        "Medians of 1, M, commit c.",
    ]


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
