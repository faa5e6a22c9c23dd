"""Joining a timing pass and a memory pass: what is the same, what is not, and that neither is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pasta.schema import TABLES
from pasta.trace import Trace, TraceWriter
from pasta.trace.frames import conform, empty_frame
from pasta.trace.join import Joined, Matched, join
from pasta.trace.passes import join_passes

Rows = list[dict[str, Any]]


def tables(**rows: Rows) -> dict[str, pl.DataFrame]:
    return {
        name: conform(pl.DataFrame(given, infer_schema_length=None), TABLES[name]) for name, given in rows.items()
    }


def run(pid: int, kernels: Rows, **more: Rows) -> dict[str, pl.DataFrame]:
    """One process with a main thread (number pid) and a worker (pid + 1)."""
    threads = [{"thread_id": pid, "name": "python", "start_ns": 0}, {"thread_id": pid + 1, "name": "w", "start_ns": 5}]
    kernels = [{"thread_id": pid, **row} for row in kernels]
    own: dict[str, Rows] = {
        "process": [{"start_ns": 0, "command": "train"}], "thread": threads, "kernel": kernels, **more,
    }  # fmt: skip
    return tables(**{name: [{"pid": pid, **row} for row in rows] for name, rows in own.items()})


def launches(*names: str, first: int = 1, **more: Any) -> Rows:
    return [{"launch_id": first + i, "name": name, "queued_ns": i, **more} for i, name in enumerate(names)]


def accesses(*launch_ids: int, **more: Any) -> Rows:
    return [{"launch_id": i, "loads": 10 * i, **more} for i in launch_ids]


def joined_loads(joined: Joined) -> list[tuple[int, int, int]]:
    rows = joined.added.get("access_object", empty_frame(TABLES["access_object"]))
    return sorted(rows.select("pid", "launch_id", "loads").rows())


def test_the_nth_launch_of_a_kernel_is_the_nth() -> None:
    """The timing pass has its launches in the order of buffers, with correlation ids in that of the calls."""
    timing = run(7, launches("b", "a", "a"))
    order = pl.Series("correlation_id", [30, 20, 10])
    timing["kernel"] = timing["kernel"].with_columns(order)
    memory = run(9, launches("a", "a", "b", first=100), access_object=accesses(100, 101, 102))
    joined = join(timing, memory)
    assert joined.launches == Matched(3, 0, 0)
    assert joined_loads(joined) == [(7, 1, 1020), (7, 2, 1010), (7, 3, 1000)]


def test_what_the_launches_do_not_agree_in_is_not_joined() -> None:
    """One more launch of `a` leaves open which of them is which; `b` with another grid is another launch."""
    timing = run(7, [*launches("a", "a"), *launches("b", first=3, grid_x=4), *launches("c", first=4)])
    memory = run(
        9, [*launches("a", "a", "a"), *launches("b", first=4, grid_x=8), *launches("c", first=5)],
        access_object=accesses(1, 2, 3, 4, 5),
    )  # fmt: skip
    joined = join(timing, memory)
    assert joined.launches == Matched(1, 3, 4)
    assert joined_loads(joined) == [(7, 4, 50)]
    losses = joined.added["loss"].select("source", "table", "records").rows()
    assert losses == [("join", "access_object", 4), ("join", "kernel", 7)]


def test_threads_and_operators_tell_launches_apart() -> None:
    def one(pid: int, first: int, swapped: bool, **more: Rows) -> dict[str, pl.DataFrame]:
        ops = [
            {"op_id": first, "parent_id": None, "name": "forward"},
            {"op_id": first + 1, "parent_id": first, "name": "mm"},
            {"op_id": first + 2, "parent_id": None, "name": "backward"},
            {"op_id": first + 3, "parent_id": first + 2, "name": "mm"},
        ]
        kernels = [
            {"name": "gemm", "op_id": first + 1}, {"name": "gemm", "op_id": first + 3},
            {"name": "gemm", "op_id": first + 1, "thread_id": pid + 1},
        ]  # fmt: skip
        order = [2, 1, 0] if swapped else [0, 1, 2]
        rows = [{**kernels[k], "launch_id": 10 * k + first, "queued_ns": i} for i, k in enumerate(order)]
        return run(pid, rows, op=ops, **more)

    timing, memory = one(7, 1, False), one(9, 5, True, access_object=accesses(5, 15, 25))
    joined = join(timing, memory)
    assert joined.launches == Matched(3, 0, 0)
    assert joined_loads(joined) == [(7, 1, 50), (7, 11, 150), (7, 21, 250)]


def test_what_one_run_never_tells_is_not_compared() -> None:
    """Without traced calls CUPTI's kernels have neither thread nor operator; here the order of calls is that of ids."""
    timing = run(7, launches("a", "a", "b"))
    timing["kernel"] = timing["kernel"].with_columns(thread_id=pl.lit(None, pl.Int32))
    ops = [{"op_id": 1, "name": "mm"}]
    memory = run(9, launches("a", "a", "b", op_id=1), op=ops, access_object=accesses(1, 2, 3))
    joined = join(timing, memory)
    assert joined.launches == Matched(3, 0, 0)
    assert joined_loads(joined) == [(7, 1, 10), (7, 2, 20), (7, 3, 30)]


def test_ranks_are_joined_each_with_itself() -> None:
    def job(pids: tuple[int, int], **more: Rows) -> dict[str, pl.DataFrame]:
        ranks = [{"pid": pid, "rank": rank} for rank, pid in enumerate(pids)]
        process = [{**rank, "start_ns": 0, "command": "train"} for rank in ranks]
        return tables(process=process, kernel=[{**rank, "launch_id": 1, "name": "k"} for rank in ranks], **more)

    memory = job((9, 8), access_object=[{"pid": 9, "launch_id": 1, "loads": 9}, {"pid": 8, "launch_id": 1, "loads": 8}])
    assert joined_loads(join(job((6, 7)), memory)) == [(6, 1, 9), (7, 1, 8)]


def test_another_program_has_nothing_in_common() -> None:
    other = run(9, launches("a"), access_object=accesses(1))
    other["process"] = other["process"].with_columns(command=pl.lit("other"))
    joined = join(run(7, launches("a")), other)
    assert joined.launches == Matched(0, 1, 1)
    assert joined_loads(joined) == []


def test_objects_get_the_ids_of_the_timing_pass() -> None:
    """The second object of 64 bytes is the second; that of 7 bytes only the memory pass has."""
    def alloc(sizes: list[int], first: int) -> Rows:
        return [
            {"object_id": first + i, "bytes": size, "action": "alloc", "start_ns": i, "kind": "device"}
            for i, size in enumerate(sizes)
        ]

    touched = [{"launch_id": 1, "object_id": i, "loads": i} for i in (50, 51, 52, None)]
    blocks = [{"launch_id": 1, "object_id": 52, "start_ns": 777, "accesses": 3}]
    timing = run(7, [{"launch_id": 4, "name": "k", "start_ns": 1000, "end_ns": 1100}], alloc=alloc([64, 64, 32], 10))
    memory = run(
        9, [{"launch_id": 1, "name": "k"}], alloc=alloc([64, 7, 64], 50), access_object=touched, access_block=blocks
    )
    joined = join(timing, memory)
    assert joined.objects == Matched(2, 1, 1)
    ids = joined.added["access_object"].sort("loads", nulls_last=True)["object_id"].to_list()
    assert ids == [10, 12 + 51, 11, None]
    extra = joined.added["alloc"].select("pid", "object_id", "bytes", "action", "start_ns", "thread_id", "kind").rows()
    assert extra == [(7, 63, 7, "alloc", None, None, "device")]
    block = joined.added["access_block"].select("launch_id", "object_id", "start_ns", "end_ns").rows()
    assert block == [(4, 11, 1000, 1100)]


def test_tensors_of_the_timing_pass_get_ids() -> None:
    def tensor(action: str, size: int, address: int, at: int, number: int | None = None) -> dict[str, Any]:
        return {
            "action": action, "bytes": size, "address": address, "start_ns": at, "tensor_id": number,
            "device_type": "cuda", "device_index": 0,
        }  # fmt: skip

    cpu = {**tensor("alloc", 64, 1, 9), "device_type": "cpu"}
    timing = run(7, [], tensor=[
        tensor("alloc", 64, 1, 1), tensor("free", 64, 1, 2), tensor("alloc", 32, 1, 3), tensor("free", 32, 1, 4), cpu,
        tensor("alloc", 16, 1, 5),
    ])  # fmt: skip
    memory = run(9, [], tensor=[
        tensor("alloc", 64, 5, 1, 70), tensor("alloc", 32, 6, 2, 71), tensor("free", 64, 5, 3, 70),
        tensor("alloc", 8, 6, 4, 72),
    ])  # fmt: skip
    joined = join(timing, memory)
    assert joined.tensors == Matched(2, 1, 1)
    assert joined.replaced["tensor"]["tensor_id"].to_list() == [70, 70, 71, 71, None, None]
    assert joined.added["tensor"].select("pid", "tensor_id", "bytes", "start_ns").rows() == [(7, 72, 8, None)]


def test_what_only_the_memory_pass_knows_of_kernels() -> None:
    timing = run(7, [{"launch_id": 1, "name": "k", "registers": 8}])
    memory = run(9, [{"launch_id": 1, "name": "k", "registers": 9, "local_bytes": 16}])
    kernel = join(timing, memory).replaced["kernel"]
    assert kernel.select("registers", "local_bytes").rows() == [(8, 16)]


def test_lines_builds_and_losses_come_along() -> None:
    loss = [{"source": "opencl", "table": "access_object", "records": 2, "cause": "no room", "start_ns": 5}]
    memory = run(
        9, launches("k"), line=[{"site_id": 3, "line": 12}], loss=loss,
        build=[{"log": "instrumented: global", "start_ns": 4}], access_site=[{"launch_id": 1, "site_id": 3}],
    )  # fmt: skip
    added = join(run(7, launches("k")), memory).added
    assert added["line"].select("pid", "site_id", "line").rows() == [(7, 3, 12)]
    assert added["access_site"].select("pid", "launch_id", "site_id").rows() == [(7, 1, 3)]
    assert added["build"].select("pid", "log", "start_ns").rows() == [(7, "instrumented: global", None)]
    assert added["loss"].select("pid", "records", "cause", "start_ns").rows() == [(7, 2, "memory pass: no room", None)]


@pytest.mark.parametrize("form", ["file", "dir"])
def test_the_joined_trace_takes_the_place_of_the_timing_pass(tmp_path: Path, form: Any) -> None:
    paths = tmp_path / "t.pasta", tmp_path / "m.pasta"
    for path, given in zip(
        paths, (run(7, launches("a", "b")), run(9, launches("a", "c"), access_object=accesses(1, 2))), strict=True
    ):
        with TraceWriter(path, form) as writer:
            for name, frame in given.items():
                writer.append(name, frame)
            writer.manifest["options"] = {"output": "x"} if path == paths[0] else {"memory": "objects", "output": "y"}
    summary, sentence = join_passes(*paths, form)
    assert sentence == (
        "1 launches are the same in both passes; the program did not repeat itself: 1 of the timing pass and 1 of the "
        "memory pass have no equal"
    )
    assert summary.rows["access_object"] == 1
    with Trace.open(paths[0]) as trace:
        assert trace.manifest["passes"]["launches"] == {"both": 1, "timing_only": 1, "memory_only": 1}
        assert trace.manifest["options"] == {"output": "x", "memory": "objects"}
        assert {loss["table"]: loss["records"] for loss in trace.manifest["losses"]} == {
            "access_object": 1, "kernel": 2,
        }  # fmt: skip
        assert trace.kernel.select("name").collect()["name"].to_list() == ["a", "b"]
