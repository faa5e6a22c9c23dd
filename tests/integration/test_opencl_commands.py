"""Every kind of OpenCL command, once: what ``opencl_programs/commands.c`` does is what the tables say."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pytest
from opencl_run import DRIVERS, Driver, compile_with_any_loader, rows, run_recorded

from pasta.trace import Trace


@dataclass
class Recorded:
    trace: Trace
    said: dict[str, list[str]]  # what the program printed: the parts that this device has, with addresses

    def has(self, part: str) -> bool:
        return part in self.said


@pytest.fixture(scope="module", params=DRIVERS.values(), ids=DRIVERS.keys())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    driver: Driver = request.param
    folder = tmp_path_factory.mktemp("commands")
    program = compile_with_any_loader("commands", folder)
    output = folder / "commands.pasta"
    result = run_recorded(driver, output, program, driver.platform, options=("-t", "all,api=all"))
    assert result.returncode == 0, result.stderr
    said = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line}
    return Recorded(Trace.open(output), said)


#: kind, bytes, source, destination, whether the call returned before the copy was done
Copy = tuple[str, int, str, str, bool]

_BUFFERS: list[Copy] = [
    ("h2d", 4096, "pageable", "device", True),
    ("d2h", 1001, "device", "pageable", False),
    ("d2d", 1002, "device", "device", True),
    ("h2d", 32 * 3 * 2, "pageable", "device", False),
    ("d2h", 32 * 3 * 2, "device", "pageable", False),
    ("d2d", 32 * 3 * 2, "device", "device", True),
    ("map", 1005, "device", "pageable", False),
    ("unmap", 1005, "pageable", "device", True),
    ("d2h", 2048, "device", "pageable", True),  # the migration to the host
    ("d2h", 500, "sub_buffer", "pageable", False),
]
#: Texels have 4 bytes.
_IMAGES: list[Copy] = [
    ("h2d", 64 * 32 * 4, "pageable", "image", False),
    ("d2h", 63 * 31 * 4, "image", "pageable", False),
    ("d2d", 62 * 30 * 4, "image", "image", True),
    ("d2d", 61 * 29 * 4, "image", "device", True),
    ("d2d", 60 * 28 * 4, "device", "image", True),
    ("map", 58 * 26 * 4, "image", "pageable", False),
    ("unmap", 58 * 26 * 4, "pageable", "image", True),
]
_SVM: list[Copy] = [
    ("h2d", 2001, "pageable", "svm", False),
    ("d2h", 2002, "svm", "pageable", False),
    ("d2d", 2003, "svm", "svm", True),
    ("map", 2005, "svm", "pageable", False),
    ("unmap", 2005, "pageable", "svm", True),
]


def test_copies(recorded: Recorded) -> None:
    expected = _BUFFERS + (_IMAGES if recorded.has("images") else []) + (_SVM if recorded.has("svm") else [])
    copies = rows(recorded.trace, "memcpy")
    columns = ["kind", "bytes", "src_kind", "dst_kind", "asynchronous"]
    assert copies.select(columns).rows() == expected
    # The device's side of a copy has a device and an object, the program's memory has neither.
    for side in ("src", "dst"):
        on_host = copies[f"{side}_kind"] == "pageable"
        assert (copies[f"{side}_device_id"].is_null() == on_host).all()
        assert (copies[f"{side}_object_id"].is_null() == on_host).all()


def test_fills(recorded: Recorded) -> None:
    expected = [(1004, 0x01020304, "device")]
    if recorded.has("images"):
        expected.append((59 * 27 * 4, None, "image"))  # a colour is no single value
    if recorded.has("svm"):
        expected.append((2004, 0x0102, "svm"))
    assert rows(recorded.trace, "memset").select("bytes", "value", "memory_kind").rows() == expected


def test_launches(recorded: Recorded) -> None:
    kernels = rows(recorded.trace, "kernel")
    shape = ["name"] + [f"{what}_{axis}" for what in ("global", "grid", "block") for axis in "xyz"]
    expected = [
        ("plain", 128, 6, 4, 4, 2, 2, 32, 3, 2),
        ("plain", 128, 1, 1, *[None] * 6),  # the runtime chooses
    ]
    if recorded.has("fixed"):
        told = recorded.said["fixed"] == ["8"]  # the kernel's own work-group size is 8 x 4
        expected.append(("fixed", 16, 12, 1, *((2, 3, 1, 8, 4, 1) if told else [None] * 6)))
    expected.append(("plain", *[1] * 9))
    if recorded.has("native"):
        expected.append(("native kernel", *[1] * 9))
    assert kernels.select(shape).rows() == expected
    assert kernels["launch_id"].is_sorted()
    assert kernels["launch_id"].n_unique() == kernels.height
    assert kernels.filter(pl.col("name") == "plain")["static_shared_bytes"].drop_nulls().unique().to_list() in ([0], [])
    fixed = kernels.filter(pl.col("name") == "fixed")["static_shared_bytes"].drop_nulls()
    assert (fixed >= 32 * 4).all()  # local int tile[32]


def test_times_are_in_order(recorded: Recorded) -> None:
    for table in ("kernel", "memcpy", "memset"):
        frame = rows(recorded.trace, table)
        assert frame["end_ns"].null_count() == 0
        assert (frame["submitted_ns"] <= frame["start_ns"]).all()
        assert (frame["start_ns"] <= frame["end_ns"]).all()
        # The call that enqueued it began before, on the host's clock: the device's is placed on that to within the
        # call's duration. Oclgrind's clock has steps of 256 ns.
        calls = rows(recorded.trace, "api").select("correlation_id", call_ns="start_ns", return_ns="end_ns")
        frame = frame.join(calls, on="correlation_id", how="left")
        assert (frame["call_ns"] == frame["queued_ns"]).all()
        error = frame["return_ns"] - frame["call_ns"] + 256
        assert (frame["submitted_ns"] >= frame["call_ns"] - error).all()


def test_objects_come_and_go(recorded: Recorded) -> None:
    allocs = recorded.trace.table("alloc").collect().sort("start_ns")
    made = allocs.filter(pl.col("action") == "alloc")
    sizes = [("device", 4096), ("device", 2048), ("sub_buffer", 512), ("device", 1024)]
    if recorded.has("images"):
        sizes += [("image", 64 * 32 * 4)] * 2 + [("device", 8192)]
    if recorded.has("svm"):
        sizes += [("svm", 3000), ("svm", 3001)]
    sizes += [("device", 65536)]
    assert made.select("kind", "bytes").rows() == sizes
    # The sub-buffer is a part of the first buffer.
    assert made["parent_object_id"].to_list()[:4] == [None, None, made["object_id"][0], None]
    # An address is known where the API tells one.
    addresses = [int(text, 16) for text in recorded.said["own"] + recorded.said.get("svm", [])]
    assert made["address"].drop_nulls().to_list() == addresses
    # What was released is freed once, with the same size; the rest ends with the process.
    freed = allocs.filter(pl.col("action") == "free")
    assert freed["object_id"].n_unique() == freed.height
    both = freed.join(made, on="object_id")
    assert both.height == freed.height == made.height
    assert (both["bytes"] == both["bytes_right"]).all()


def test_calls(recorded: Recorded) -> None:
    calls = rows(recorded.trace, "api")
    assert calls["correlation_id"].n_unique() == calls.height
    assert (calls["start_ns"] <= calls["end_ns"]).all()
    names = dict(calls.group_by("name").len().rows())
    assert names["clEnqueueCopyBufferRect"] == 1
    assert names["clBuildProgram"] == 1
    assert names["clSetKernelArg"] == 2  # with api=all only
    failed = calls.filter((pl.col("result") != 0) & (pl.col("name") == "clEnqueueNDRangeKernel"))
    assert failed.height == (1 if recorded.has("fixed") else 2)  # the one with four dimensions; see the program
    # Every command belongs to the call that enqueued it.
    for table in ("kernel", "memcpy", "memset"):
        joined = rows(recorded.trace, table).join(calls, on="correlation_id")
        assert joined.height == rows(recorded.trace, table).height
        assert joined["name_right" if table == "kernel" else "name"].str.starts_with("clEnqueue").all()


def test_waits_and_identity(recorded: Recorded) -> None:
    calls = rows(recorded.trace, "api")
    finishes = calls.filter(pl.col("name") == "clFinish").height
    waits = rows(recorded.trace, "sync")
    assert waits["kind"].to_list() == ["stream"] * finishes
    [stream] = recorded.trace.table("stream").collect().to_dicts()
    assert stream["out_of_order"] is False
    assert stream["end_ns"] > stream["start_ns"]
    [context] = recorded.trace.table("context").collect().to_dicts()
    assert context["api"] == "opencl"
    assert context["end_ns"] >= stream["end_ns"]
    [device] = recorded.trace.table("device").collect().to_dicts()
    assert device["kind"] in ("cpu", "gpu")  # Oclgrind says that it is both
    assert device["memory_bytes"] > 0
    [build] = recorded.trace.table("build").collect().to_dicts()
    assert (build["source"], build["result"], build["device_id"]) == ("text", 0, device["device_id"])
    assert recorded.trace.table("clock").collect()["source"].str.starts_with("opencl:").any()
    assert recorded.trace.table("loss").collect().is_empty()
