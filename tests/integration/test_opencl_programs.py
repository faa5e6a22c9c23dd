"""Builds, and memory of extensions."""

from __future__ import annotations

from pathlib import Path

from opencl_run import Driver, compile_with_any_loader, each_driver, rows, run_recorded

from pasta.trace import Trace

_BUILD_PROGRAM_FAILURE = -11  # CL/cl.h


@each_driver
def test_builds(driver: Driver, tmp_path: Path) -> None:
    program = compile_with_any_loader("builds", tmp_path)
    output = tmp_path / "builds.pasta"
    result = run_recorded(driver, output, program, driver.platform)
    assert (result.returncode, result.stdout) == (0, "42\n"), result.stderr
    trace = Trace.open(output)
    builds = trace.table("build").collect().sort("start_ns")
    assert builds.select("source", "options", "result").rows() == [
        ("text", "-DVALUE=7", 0),
        ("text", "", _BUILD_PROGRAM_FAILURE),
        ("text", "", 0),
        ("text", "", 0),
        ("text", "", 0),
        ("linked", "", 0),
    ]
    assert builds["program_id"].n_unique() == 6
    assert builds["device_id"].unique().to_list() == [0]
    assert (builds["start_ns"] < builds["end_ns"]).all()
    assert "error" in builds["log"][1]
    assert rows(trace, "kernel")["name"].to_list() == ["linked"]


@each_driver
def test_unified_shared_memory(driver: Driver, tmp_path: Path) -> None:
    program = compile_with_any_loader("usm", tmp_path)
    output = tmp_path / "usm.pasta"
    result = run_recorded(driver, output, program, driver.platform)
    assert result.returncode == 0, result.stderr
    if result.stdout == "none\n":
        return  # the program found no such function, as without pasta
    *texts, migrated = result.stdout.split()
    addresses = [int(text, 16) for text in texts]
    trace = Trace.open(output)
    allocs = trace.table("alloc").collect().sort("start_ns").select("action", "kind", "bytes", "address").rows()
    kinds = zip(("host_usm", "device_usm", "shared_usm"), (1000, 2000, 3000), addresses, strict=True)
    objects = list(kinds)
    assert allocs == [("alloc", *row) for row in objects] + [("free", *row) for row in objects]
    expected = [
        ("h2d", 1001, "pageable", "device_usm", False),
        ("d2d", 902, "host_usm", "device_usm", True),
        ("d2h", 1003, "shared_usm", "pageable", False),
    ]
    if migrated == "0":
        expected.append(("h2d", 1005, "pageable", "shared_usm", True))
    copies = rows(trace, "memcpy").select("kind", "bytes", "src_kind", "dst_kind", "asynchronous")
    assert copies.rows() == expected
    assert rows(trace, "memset").select("bytes", "value", "memory_kind").rows() == [
        (800, 0x0102030405060708, "shared_usm")
    ]
