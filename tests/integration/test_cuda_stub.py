"""The whole CUDA path without a GPU: programs on a stub of the driver and CUPTI, whose records have known numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from cuda_stub_run import SOURCES, Stub, build_stub, rows
from recorded import PASTA, environment

NODES = 4  # of the stub's graph


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return build_stub(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def program(stub: Stub) -> Path:
    return stub.build(SOURCES / "program.c")


# 20,000 kernels are 3 MB of records: more than the 1 MiB of a buffer.
@pytest.mark.parametrize(("launches", "copies"), [(0, 0), (1, 2), (20_000, 100)])
def test_every_launch_and_copy_is_a_row(
    stub: Stub, program: Path, tmp_path: Path, launches: int, copies: int
) -> None:
    output = tmp_path / "t.pasta"
    result = stub.record([program, "launches", str(launches), "copies", str(copies)], output)
    assert (result.returncode, result.stdout) == (3, "done\n"), result.stderr
    kernel, memcpy, api = rows(output, "kernel"), rows(output, "memcpy"), rows(output, "api")
    assert (kernel.height, memcpy.height) == (launches, copies)
    if launches:
        shape = kernel.select("name", "mangled", "grid_x", "grid_y", "block_x", "stream_id").unique().rows()
        assert shape == [("add(float const*, float const*, float*, int)", "_Z3addPKfS0_Pfi", 4096, 1, 256, 7)]
    assert memcpy["bytes"].sum() == copies * 4096
    assert set(memcpy["kind"]) <= {"h2d"}
    assert rows(output, "memset").select("bytes", "value").rows() == [(512, 7)]
    # One object, freed with the size that it was made with.
    alloc = rows(output, "alloc")
    assert alloc.select("action", "bytes").rows() == [("alloc", 1 << 20), ("free", 1 << 20)]
    assert alloc["object_id"].n_unique() == 1
    # The calls that launch, move, create and wait; cuCtxGetDevice before every launch is not among them.
    expected = {"cuMemAlloc_v2": 1, "cuMemsetD8_v2": 1, "cuCtxSynchronize": 1, "cuMemFree_v2": 1,
                "cuMemcpyHtoD_v2": copies, "cuLaunchKernel": launches}  # fmt: skip
    assert dict(api.group_by("name").len().rows()) == {name: n for name, n in expected.items() if n}
    assert rows(output, "sync")["kind"].to_list() == ["context"]
    assert rows(output, "loss").height == 0
    assert rows(output, "device")["name"].to_list() == ["Stub GPU"]


def test_work_is_on_the_sessions_clock_and_on_the_thread_that_launched_it(
    stub: Stub, program: Path, tmp_path: Path
) -> None:
    output = tmp_path / "t.pasta"
    stub.record([program, "launches", "50"], output)
    kernel, process = rows(output, "kernel"), rows(output, "process")
    launches = rows(output, "api").filter(name="cuLaunchKernel")
    joined = kernel.join(launches, on="correlation_id", suffix="_api")
    assert joined.height == 50
    # The stub's work begins during its call, on a clock of its own that counts from 1970.
    assert joined.filter(joined["start_ns"] < joined["start_ns_api"]).height == 0
    assert joined.filter(joined["start_ns"] > joined["end_ns_api"]).height == 0
    assert kernel["start_ns"].min() >= process["start_ns"][0]  # type: ignore[operator]
    assert kernel["end_ns"].max() <= process["end_ns"][0]  # type: ignore[operator]
    assert kernel["thread_id"].to_list() == process["pid"].to_list() * 50  # the main thread


def test_graphs_by_node_and_as_a_whole(stub: Stub, program: Path, tmp_path: Path) -> None:
    stub.record([program, "graphs", "10"], tmp_path / "node.pasta")
    node = rows(tmp_path / "node.pasta", "kernel")
    assert (node.height, node["graph_node_id"].n_unique(), node["correlation_id"].n_unique()) == (10 * NODES, NODES, 10)
    stub.record([program, "graphs", "10", "launches", "3"], tmp_path / "graph.pasta", "--cuda-graph-trace=graph")
    kernel = rows(tmp_path / "graph.pasta", "kernel")
    whole = kernel.filter(graph_id=5)
    assert whole.select("name", "graph_node_id", "grid_x").unique().rows() == [("CUDA graph 5", None, None)]
    assert (whole.height, kernel.height) == (10, 13)
    assert whole["thread_id"].null_count() == 0


def test_a_wait_of_the_runtime_and_its_drivers_is_one(stub: Stub, program: Path, tmp_path: Path) -> None:
    stub.record([program, "waits", "5"], tmp_path / "t.pasta")
    names = [name for name in rows(tmp_path / "t.pasta", "api")["name"] if "Synchronize" in name]
    assert sorted(names) == ["cuCtxSynchronize"] + ["cudaDeviceSynchronize"] * 5
    assert rows(tmp_path / "t.pasta", "sync")["kind"].to_list() == ["context"] * 6


# 20,000 launches are 6 MB of records: the end of a buffer may lie between a call and its inner call.
@pytest.mark.parametrize("options", [(), ("-t", "kernel,api=all")])
def test_a_launch_of_the_runtime_is_one_call(
    stub: Stub, program: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    output = tmp_path / "t.pasta"
    stub.record([program, "runtime", "20000", "launches", "70"], output, *options)
    launches = rows(output, "api").filter(pl.col("name").str.contains("Launch"))
    assert dict(launches.group_by("name").len().rows()) == {"cudaLaunchKernel": 20_000, "cuLaunchKernel": 70}
    kernel = rows(output, "kernel")
    assert kernel.height == 20_070
    assert kernel["thread_id"].null_count() == 0  # every kernel finds its call


def test_the_last_call_is_written_while_the_program_does_nothing(stub: Stub, program: Path, tmp_path: Path) -> None:
    """It waits for the next call of its thread, which never comes; killed then, the program leaves it all the same."""
    output = tmp_path / "t.pasta"
    command = [*PASTA, "record", "-q", "-o", output, "--", program, "linger", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(**stub.variables)) as pasta:
        assert pasta.stdout is not None
        assert pasta.stdout.readline() == "done\n"
        deadline = time.monotonic() + 60
        while "cuMemFree_v2" not in set(rows(output, "api")["name"]) and time.monotonic() < deadline:
            time.sleep(0.1)
        child = int(Path(f"/proc/{pasta.pid}/task/{pasta.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGKILL)
    assert pasta.returncode == -signal.SIGKILL
    assert "cuMemFree_v2" in set(rows(output, "api")["name"])


def test_queueing_and_submission_on_request(stub: Stub, program: Path, tmp_path: Path) -> None:
    """The stub queues a kernel 200 ns before its start and submits it 100 ns before; placing a time may round."""
    output = tmp_path / "t.pasta"
    stub.record([program, "launches", "20"], output, "--cuda-latency-timestamps")
    kernel = rows(output, "kernel")
    start = pl.col("start_ns")
    before = kernel.select(queued=start - pl.col("queued_ns"), sent=start - pl.col("submitted_ns"))
    assert kernel.height == 20
    assert set(before["queued"]) <= {199, 200, 201}
    assert set(before["sent"]) <= {99, 100, 101}
    assert rows(output, "loss").height == 0
    stub.record([program, "launches", "20"], tmp_path / "not.pasta")
    kernel = rows(tmp_path / "not.pasta", "kernel")
    assert (kernel["queued_ns"].null_count(), kernel["submitted_ns"].null_count()) == (20, 20)


def test_a_cupti_that_takes_no_queueing_times_says_so(stub: Stub, program: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    stub.record([program, "launches", "20"], output, "--cuda-latency-timestamps", STUB_LATENCY="15")
    assert rows(output, "kernel").height == 20
    (cause,) = rows(output, "loss")["cause"]
    assert cause.startswith("times of queueing and submission are not taken: CUPTI_ERROR_NOT_INITIALIZED")


def test_selection(stub: Stub, program: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    options = ("-t", "kernel", "--launch-skip", "10", "--launch-count", "5")
    stub.record([program, "launches", "100", "copies", "9"], output, *options)
    assert rows(output, "kernel").height == 5
    assert (rows(output, "memcpy").height, rows(output, "api").height) == (0, 0)


def test_the_profiler_calls_select_kernels(stub: Stub, program: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [program, "profiled", "20", "launches", "30"]
    stub.record(command, tmp_path / "part.pasta", "--capture-range=cudaProfilerApi")
    part = rows(tmp_path / "part.pasta", "kernel")
    assert part.select("grid_x").unique().rows() == [(1,)]
    assert part.height == 20
    assert rows(tmp_path / "part.pasta", "alloc").height == 2  # where memory is, is always known
    # Without the option they mean nothing.
    stub.record(command, tmp_path / "all.pasta")
    assert rows(tmp_path / "all.pasta", "kernel").height == 50


def test_launches_by_number(stub: Stub, program: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    window = {"PASTA_START_LAUNCH": "10", "PASTA_END_LAUNCH": "15"}
    stub.record([program, "copies", "2", "launches", "100"], output, **window)
    every = tmp_path / "all.pasta"
    stub.record([program, "copies", "2", "launches", "100"], every)
    launched = rows(every, "api").filter(name="cuLaunchKernel")["correlation_id"].to_list()
    assert rows(output, "kernel")["correlation_id"].to_list() == launched[10:15]
    # The copies came before.
    assert rows(output, "memcpy").height == 0


def test_a_range_of_nvtx_selects_kernels(stub: Stub, tmp_path: Path) -> None:
    """Three launches are within ncclAllReduce, one is not; NVTX is heard though no ranges are traced."""
    output = tmp_path / "t.pasta"
    options = ("-t", "kernel", "-c", "range", "-p", "ncclAllReduce@NCCL")
    stub.record([stub.build(SOURCES / "nccl.cpp", "-ldl")], output, *options, "--capture-range-end=none")
    assert rows(output, "kernel").height == 3
    stub.record([stub.folder / "nccl"], tmp_path / "one.pasta", *options)
    assert rows(tmp_path / "one.pasta", "kernel").height == 1


def test_what_cupti_dropped_is_a_loss(stub: Stub, program: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    result = stub.record([program, "launches", "10"], output, STUB_DROPPED="7")
    assert result.returncode == 3
    loss = rows(output, "loss").row(0, named=True)
    assert (loss["source"], loss["records"], loss["cause"]) == ("cupti", 7, "CUPTI had no free activity buffer")
    assert "--buffer-size" in loss["remedy"]


KERNEL = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LLPv"


def test_collectives_have_the_bytes_of_nccls_annotations(stub: Stub, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    result = stub.record([stub.build(SOURCES / "nccl.cpp", "-ldl")], output, STUB_KERNEL=KERNEL)
    assert result.returncode == 0, result.stderr
    collective, kernel = rows(output, "collective"), rows(output, "kernel")
    assert collective.select("kind", "bytes", "group", "group_size", "peer").rows() == [
        *[("all_reduce", 4000, "c0ffee", 4, None)] * 3,
        ("send", 64, "c0ffee", 4, 2),
        ("recv", 96, "c0ffee", 4, 3),
    ]
    # A row is at the time and place of its kernel; the group has one kernel for two calls.
    columns = ["correlation_id", "start_ns", "end_ns", "device_id", "stream_id", "thread_id"]
    assert kernel.height == 4
    assert collective.select(columns).unique(maintain_order=True).rows() == kernel.select(columns).rows()
    # Ranges that end with a payload end too.
    ranges = rows(output, "range")
    assert ranges["parent_id"].null_count() == ranges.height == 8


def test_nccl_is_heard_where_ranges_are_not_traced(stub: Stub, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    stub.record([stub.build(SOURCES / "nccl.cpp", "-ldl")], output, "-t", "cuda", STUB_KERNEL=KERNEL)
    assert rows(output, "collective")["bytes"].to_list() == [4000, 4000, 4000, 64, 96]
    assert rows(output, "range").height == 0


def test_collectives_without_calls_are_known_by_their_kernels(stub: Stub, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    stub.record([stub.build(SOURCES / "nccl.cpp", "-ldl")], output, "-t", "kernel", STUB_KERNEL=KERNEL)
    assert rows(output, "collective").select("kind", "bytes").rows() == [("all_reduce", None)] * 4


def test_a_program_with_a_profiler_of_its_own_sees_what_it_sees_alone(stub: Stub, tmp_path: Path) -> None:
    client, output = stub.build(SOURCES / "client.cpp"), tmp_path / "t.pasta"
    alone = subprocess.run(
        [client], env={"LD_LIBRARY_PATH": str(stub.folder)}, capture_output=True, text=True, check=True
    )
    assert alone.stdout == "20 kernels, 0 others, 0 foreign buffers\n"
    assert stub.record([client], output).stdout == alone.stdout
    assert rows(output, "kernel").height == 10 + 20 + 30
