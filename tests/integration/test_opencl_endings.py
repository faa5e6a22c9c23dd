"""Programs that end, or go on, in unusual ways lose nothing that can be known, and behave as without pasta."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from opencl_run import DRIVERS, Driver, compile_with_any_loader, each_driver, rows, run_recorded

from pasta.trace import Trace


def _record(driver: Driver, case: str, folder: Path, status: int = 0) -> Trace:
    program = compile_with_any_loader("endings", folder)
    output = folder / "endings.pasta"
    result = run_recorded(driver, output, program, driver.platform, case)
    assert (result.returncode, result.stdout) == (status, "" if status else "end\n"), result.stderr
    return Trace.open(output)


def _lost(trace: Trace) -> dict[str, int]:
    return dict(trace.table("loss").collect().select("table", "records").rows())


#: Oclgrind itself waits for a user event, for ever, in clFlush.
_ASYNCHRONOUS = {name: driver for name, driver in DRIVERS.items() if name != "oclgrind"}
each_asynchronous_driver = pytest.mark.parametrize("driver", _ASYNCHRONOUS.values(), ids=_ASYNCHRONOUS.keys())


@each_asynchronous_driver
def test_commands_that_never_run(driver: Driver, tmp_path: Path) -> None:
    trace = _record(driver, "never", tmp_path)
    kernels = rows(trace, "kernel")
    assert kernels.height == 5
    assert kernels["end_ns"].null_count() == 5
    assert kernels["queued_ns"].null_count() == 0
    assert _lost(trace) == {"kernel": 5}


@each_driver
def test_command_that_fails(driver: Driver, tmp_path: Path) -> None:
    trace = _record(driver, "failed", tmp_path)
    assert rows(trace, "kernel").select("name", "start_ns", "end_ns").rows() == [("add_one", None, None)]
    assert _lost(trace) == {"kernel": 1}


@each_asynchronous_driver
def test_out_of_order(driver: Driver, tmp_path: Path) -> None:
    kernels = rows(_record(driver, "out_of_order", tmp_path), "kernel")
    assert kernels.height == 400
    assert kernels["end_ns"].null_count() == 0


@each_driver
def test_program_that_never_waits(driver: Driver, tmp_path: Path) -> None:
    trace = _record(driver, "no_wait", tmp_path)
    assert rows(trace, "kernel")["end_ns"].is_not_null().sum() == 2001
    assert _lost(trace) == {}


@each_asynchronous_driver  # Oclgrind failed here twice in five runs on a loaded machine, the cause is not known
def test_threads(driver: Driver, tmp_path: Path) -> None:
    trace = _record(driver, "threads", tmp_path)
    kernels = rows(trace, "kernel")
    assert kernels["end_ns"].null_count() == 0
    assert kernels["launch_id"].n_unique() == 2000
    by_thread = kernels.group_by("thread_id").agg(pl.len(), pl.col("stream_id").n_unique())
    assert by_thread.select("len", "stream_id").rows() == [(500, 1)] * 4
    assert set(kernels["thread_id"]) <= set(trace.table("thread").collect()["thread_id"])
    # A queue in order runs one launch at a time; the device's clock is placed on ours to a few microseconds.
    for _, queue in kernels.group_by("stream_id"):
        queue = queue.sort("launch_id")
        assert (queue["start_ns"].shift(-1) - queue["end_ns"]).drop_nulls().min() > -100_000


@each_asynchronous_driver  # without pasta too, Oclgrind crashes here
def test_launches_while_a_thread_ends(driver: Driver, tmp_path: Path) -> None:
    kernels = rows(_record(driver, "thread_ends", tmp_path), "kernel")
    assert kernels["end_ns"].is_not_null().sum() == 2 * 20


@each_driver
def test_fork(driver: Driver, tmp_path: Path) -> None:
    trace = _record(driver, "forks", tmp_path)
    kernels = rows(trace, "kernel")
    assert kernels["end_ns"].is_not_null().sum() == 20
    assert kernels["pid"].n_unique() == 1


@each_driver
def test_launch_from_atexit(driver: Driver, tmp_path: Path) -> None:
    assert rows(_record(driver, "late", tmp_path), "kernel").height == 2


@each_driver
def test_exit_without_handlers(driver: Driver, tmp_path: Path) -> None:
    trace = _record(driver, "hurry", tmp_path, status=7)
    assert rows(trace, "kernel")["end_ns"].is_not_null().sum() == 10
    assert trace.table("process").collect()["exit_status"].to_list() == [7]
