"""CUDA programs with known numbers of launches, copies and migrations (programs/timeline.cu)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from recorded import PASTA, Trace, environment, record

from pasta.tools.runner import run

MIB = 1 << 20


def traced(program: Path, mode: str, tmp_path: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    tmp_path.mkdir(exist_ok=True)
    output = tmp_path / "t.pasta"
    return record([program, mode], output, options), output


def table(path: Path, name: str) -> pl.DataFrame:
    with Trace.open(path) as trace:
        return trace.table(name).collect()


@pytest.mark.parametrize("runtime", ["timeline", "timeline_shared"])
def test_launches_copies_and_fills(runtime: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result, output = traced(request.getfixturevalue(runtime), "launches", tmp_path)
    assert (result.returncode, result.stdout) == (0, "2\n"), result.stderr
    kernel = table(output, "kernel")
    assert kernel.height == 100
    assert kernel["name"].unique().to_list() == ["add(float const*, float const*, float*, int)"]
    assert kernel.select("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z").unique().rows() == [
        (4096, 1, 1, 256, 1, 1)
    ]
    copies = table(output, "memcpy").group_by("kind").agg(pl.len(), pl.col("bytes").sum()).sort("kind")
    assert copies.rows() == [("d2h", 1, 4 * MIB), ("h2d", 2, 8 * MIB)]
    assert table(output, "memset")["bytes"].to_list() == [4 * MIB]
    waits = table(output, "sync").filter(pl.col("kind") == "context")
    assert waits.height == 1
    assert waits["end_ns"][0] >= kernel["end_ns"].max()
    alloc = table(output, "alloc").filter(pl.col("bytes") == 4 * MIB)
    assert alloc.group_by("action").len().sort("action").rows() == [("alloc", 3), ("free", 3)]
    # Each free is of an object that was allocated, with its size.
    assert alloc["object_id"].value_counts()["count"].to_list() == [2, 2, 2]


def test_kernels_follow_their_launch(timeline: Path, tmp_path: Path) -> None:
    _, output = traced(timeline, "launches", tmp_path)
    launches = table(output, "api").filter(pl.col("name").str.contains("LaunchKernel"))
    joined = table(output, "kernel").join(launches, on=["pid", "correlation_id"], suffix="_api")
    assert joined.height == 100
    assert joined.filter(pl.col("start_ns") < pl.col("start_ns_api")).height == 0
    assert joined["thread_id_api"].n_unique() == 1


@pytest.mark.parametrize("runtime", ["timeline", "timeline_shared"])
def test_a_launch_is_one_call(runtime: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Not also the driver's call, or another one of the runtime, by which it is done."""
    program = request.getfixturevalue(runtime)
    for options in ((), ("-t", "kernel,api=all")):
        _, output = traced(program, "launches", tmp_path / ("all" if options else "some"), *options)
        api = table(output, "api")
        launches = api.filter(pl.col("name").str.contains("LaunchKernel"))
        assert (launches.height, launches["name"].n_unique()) == (100, 1)
        waits = api.filter(pl.col("name").is_in(["cudaDeviceSynchronize", "cuCtxSynchronize"]))["name"].to_list()
        assert waits == ["cudaDeviceSynchronize"]
        joined = table(output, "kernel").join(launches, on=["pid", "correlation_id"])
        assert joined.height == 100


def test_queueing_and_submission(timeline: Path, tmp_path: Path) -> None:
    _, output = traced(timeline, "launches", tmp_path, "--cuda-latency-timestamps")
    kernel = table(output, "kernel")
    assert kernel.height == 100
    assert kernel["queued_ns"].null_count() == kernel["submitted_ns"].null_count() == 0
    assert (kernel["queued_ns"] <= kernel["submitted_ns"]).all()
    # The start is by the GPU's clock, which CUPTI places to some microseconds.
    assert (kernel["submitted_ns"] - kernel["start_ns"] < 100_000).all()


def test_graph_nodes(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "graph", tmp_path)
    assert result.returncode == 0, result.stderr
    kernel = table(output, "kernel")
    assert kernel.height == 2000
    assert kernel["graph_id"].n_unique() == 1
    assert kernel["graph_node_id"].n_unique() == 40
    assert kernel["correlation_id"].n_unique() == 50


def test_graphs_as_a_whole(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "graph", tmp_path, "--cuda-graph-trace=graph")
    assert result.returncode == 0, result.stderr
    kernel = table(output, "kernel")
    assert kernel.height == 50
    assert kernel["name"].str.starts_with("CUDA graph ").all()
    assert kernel["graph_id"].n_unique() == 1
    assert kernel["correlation_id"].n_unique() == 50
    assert kernel.filter(pl.col("end_ns") <= pl.col("start_ns")).height == 0
    with Trace.open(output) as trace:
        (graph,) = run("graphs", trace).tables[0].frame.iter_rows(named=True)
    assert (graph["calls"], graph["nodes"]) == (50, None)


def test_memory_of_a_pool(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "pool", tmp_path)
    assert result.returncode == 0, result.stderr
    pool = table(output, "alloc").filter(pl.col("kind") == "pool")
    assert pool.group_by("action", "bytes").len().sort("action").rows() == [("alloc", MIB, 3), ("free", MIB, 3)]
    assert pool["object_id"].value_counts()["count"].to_list() == [2, 2, 2]
    assert table(output, "kernel").height == 3


def test_two_devices(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "peers", tmp_path)
    if result.returncode == 77:
        pytest.skip("needs two GPUs that reach each other")
    assert result.returncode == 0, result.stderr
    assert table(output, "kernel").group_by("device_id").len().sort("device_id").rows() == [(0, 7), (1, 9)]
    copies = table(output, "memcpy").group_by("kind", "src_device_id", "dst_device_id", "bytes").len()
    assert copies.rows() == [("p2p", 0, 1, 4 * MIB, 4)]
    assert table(output, "device").filter(pl.col("device_id").is_in([0, 1])).height == 2


def test_eight_threads(timeline: Path, tmp_path: Path) -> None:
    _, output = traced(timeline, "threads", tmp_path)
    kernel = table(output, "kernel")
    assert kernel["stream_id"].value_counts()["count"].to_list() == [200] * 8


def test_two_contexts(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "contexts", tmp_path)
    assert result.returncode == 0, result.stderr
    assert table(output, "kernel")["context_id"].value_counts()["count"].to_list() == [10, 10]


def test_managed_memory_migrates_once_each_way(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "managed", tmp_path)
    assert result.returncode == 0, result.stderr
    moved = table(output, "uvm").group_by("kind").agg(pl.col("bytes").sum(), pl.col("count").sum())
    by_kind = {row["kind"]: row for row in moved.iter_rows(named=True)}
    assert by_kind["migrate_h2d"]["bytes"] == 64 * MIB
    assert by_kind["migrate_d2h"]["bytes"] == 64 * MIB
    assert by_kind["fault_gpu"]["count"] > 0


def test_exit_without_destructors(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "leave", tmp_path)
    assert result.returncode == 9
    assert table(output, "kernel").height == 50


def test_fork_before_cuda(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "forks", tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(table(output, "kernel")["pid"].value_counts()["count"]) == [20, 30]


def test_faulting_kernel_keeps_the_rest(timeline: Path, tmp_path: Path) -> None:
    result, output = traced(timeline, "faults", tmp_path)
    assert result.returncode == 3
    assert result.stdout == "cudaErrorIllegalAddress\n"
    assert table(output, "kernel").filter(pl.col("name").str.starts_with("add")).height == 25
    assert table(output, "loss")["cause"].str.starts_with("a kernel of the program failed (illegal address)").any()


def test_killed_program_leaves_all_but_the_last_second(timeline: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    pasta = subprocess.Popen(
        [*PASTA, "record", "-o", output, "--", timeline, "forever"],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert pasta.stdout is not None
    done = 0
    while done < 300_000:  # some seconds of launches
        done = int(pasta.stdout.readline())
    child = int(Path(f"/proc/{pasta.pid}/task/{pasta.pid}/children").read_text().split()[0])
    subprocess.run(["kill", "-KILL", str(child)], check=True)
    assert pasta.wait() == -signal.SIGKILL
    kernel = table(output, "kernel")
    with Trace.open(output) as trace:
        end = trace.table("process").collect()["end_ns"].max()
    assert isinstance(end, int)
    assert end - kernel["end_ns"].max() < 1_000_000_000  # type: ignore[operator]
    assert kernel.height > 100_000


def test_an_idle_program_that_is_killed_leaves_all(timeline: Path, tmp_path: Path) -> None:
    """Its records fill no buffer of CUPTI's. Its last call comes later than its kernels: another might be within it."""
    output = tmp_path / "t.pasta"

    def waits() -> int:
        return int((table(output, "api")["name"] == "cudaDeviceSynchronize").sum())

    command = [*PASTA, "record", "-o", output, "--", timeline, "lingers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as pasta:
        assert pasta.stdout is not None
        assert pasta.stdout.readline() == "done\n"
        deadline = time.monotonic() + 60
        while (table(output, "kernel").height < 20 or waits() == 0) and time.monotonic() < deadline:
            time.sleep(0.1)
        child = int(Path(f"/proc/{pasta.pid}/task/{pasta.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGKILL)
    assert table(output, "kernel").height == 20
    assert waits() == 1


def test_between_the_profiler_calls(timeline: Path, tmp_path: Path) -> None:
    _, output = traced(timeline, "profiled", tmp_path, "--capture-range=cudaProfilerApi")
    assert table(output, "kernel").height == 20
    _, everything = traced(timeline, "profiled", tmp_path / "all")
    assert table(everything, "kernel").height == 60


def test_selected_kernels_only(timeline: Path, tmp_path: Path) -> None:
    _, output = traced(timeline, "launches", tmp_path, "-t", "kernel", "--launch-skip", "10", "--launch-count", "5")
    assert table(output, "kernel").height == 5
    assert table(output, "memcpy").height == 0
