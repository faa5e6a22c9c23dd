"""Queues get profiling that the program did not ask for; the program sees nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from opencl_run import DRIVERS, Driver, compile_with_any_loader, rows, run_plain, run_recorded

from pasta.trace import Trace

#: Oclgrind gives times whether a queue has profiling or not, against the standard: what it is asked for cannot be told.
_CONFORMING = {name: driver for name, driver in DRIVERS.items() if name != "oclgrind"}


@pytest.mark.parametrize("driver", _CONFORMING.values(), ids=_CONFORMING.keys())
def test_program_sees_what_it_asked_for(driver: Driver, tmp_path: Path) -> None:
    program = compile_with_any_loader("hiding", tmp_path)
    plain = run_plain(driver, program, driver.platform)
    assert plain.returncode == 0, plain.stderr
    assert "plain: flags 0" in plain.stdout
    recorded = run_recorded(driver, tmp_path / "hiding.pasta", program, driver.platform)
    assert (recorded.returncode, recorded.stdout) == (0, plain.stdout)

    # The times are there all the same, for every queue.
    trace = Trace.open(tmp_path / "hiding.pasta")
    copies = rows(trace, "memcpy")
    queues = trace.table("stream").collect()
    assert copies["stream_id"].to_list() == queues["stream_id"].sort().to_list()
    assert copies["end_ns"].null_count() == 0
    assert queues["out_of_order"].sum() == plain.stdout.count("flags 1") + plain.stdout.count("flags 3")
