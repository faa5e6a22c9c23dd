"""Programs under `pasta record --memory` whose output must not change; what the trace says of them."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from opencl_run import Driver, compile_with_any_loader, need_intel, run_plain, run_recorded

from pasta.trace import Trace

#: A program of this folder exits with it where the machine lacks what the case needs.
SKIPPED = 77


def measure_python(program: Path, case: str, folder: Path, *options: str, driver: Driver | None = None) -> Trace:
    """Record a case of a Python program; it must print the same without pasta."""
    driver = driver or need_intel()
    command: list[str | Path] = [sys.executable, program, driver.platform, case]
    plain = run_plain(driver, *command)
    if plain.returncode == SKIPPED:
        pytest.skip(f"{case} needs what is not installed here")
    assert plain.returncode == 0, plain.stderr
    output = folder / f"{case}.pasta"
    recorded = run_recorded(driver, output, *command, options=options or ("--memory",))
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == plain.stdout
    return Trace.open(output)


def measure_c(case: str, folder: Path, *options: str, driver: Driver | None = None) -> tuple[int, Trace]:
    """Record a case of ``measured.c``; the number that it prints must be the same without pasta."""
    driver = driver or need_intel()
    program = compile_with_any_loader("measured", folder)
    output = folder / f"{case}.pasta"
    command: list[str | Path] = [program, driver.platform, case]
    recorded = run_recorded(driver, output, *command, options=("--memory", *options))
    assert recorded.returncode == 0, recorded.stderr
    plain = run_plain(driver, *command)
    assert (plain.returncode, plain.stdout) == (0, recorded.stdout), plain.stderr
    return int(plain.stdout), Trace.open(output)


def objects(trace: Trace) -> pl.DataFrame:
    """Return the rows of `access_object` in the order of launches and arguments, with the kernel's name."""
    kernels = trace.table("kernel").select("launch_id", pl.col("name").alias("kernel"), "global_x")
    joined = trace.table("access_object").join(kernels, on="launch_id", how="left")
    return joined.sort("launch_id", "argument").collect()


def nothing_lost(trace: Trace) -> bool:
    return trace.table("loss").collect().is_empty()


def losses(trace: Trace) -> list[tuple[int, str, str | None]]:
    """Return records, cause and remedy of each loss of measurements."""
    loss = trace.table("loss").filter(table="access_object").sort("cause")
    return loss.select("records", "cause", "remedy").collect().rows()
