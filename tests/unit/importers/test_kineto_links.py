"""Who launched what in Kineto files: operators, calls and device work; expected values are how each file was built."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import real_traces
from kineto_maker import call, column, document, event, imported, kernel, op, rows

from pasta.importers import import_files
from pasta.importers.chrome_events import event_stream
from pasta.importers.packed import Source
from pasta.trace import Trace


def test_operators_nest_by_time_on_their_thread(tmp_path: Path) -> None:
    events = [
        op("inner", 2000, 3000, External_id=12),
        op("outer", 1000, 5000, External_id=11),
        op("after", 5000, 6000, External_id=13),
        op("elsewhere", 2000, 3000, External_id=14) | {"tid": 99},
    ]
    with imported(tmp_path, document(events)) as trace:
        parents = {row["name"]: row["parent_id"] for row in rows(trace, "op")}
        assert parents == {"outer": None, "inner": 11, "after": None, "elsewhere": None}


def test_equal_times_nest_in_the_order_of_their_ids(tmp_path: Path) -> None:
    events = [op("child", 0, 1000, External_id=2), op("parent", 0, 1000, External_id=1)]
    with imported(tmp_path, document(events)) as trace:
        assert {row["name"]: row["parent_id"] for row in rows(trace, "op")} == {"parent": None, "child": 1}


def test_calls_kernels_and_tensors_belong_to_the_operator_that_was_running(tmp_path: Path) -> None:
    memory = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 4711, "tid": 4711, "ts": 2}
    events = [
        op("aten::add", 1000, 5000, External_id=7),
        memory | {"args": {"Addr": 4096, "Bytes": 512, "Total Allocated": 512, "Device Type": 1, "Device Id": 0}},
        call("cudaLaunchKernel", 3000, 4000, correlation=30),
        kernel("add", 8000, 9000, correlation=30),
        memory | {"ts": 7, "args": {"Addr": 4096, "Bytes": -512, "Device Type": 0, "Device Id": -1}},
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "api", "op_id") == [7]
        assert rows(trace, "kernel", "op_id", "thread_id") == [{"op_id": 7, "thread_id": 4711}]
        columns = ("action", "bytes", "allocated_bytes", "device_type", "device_index", "op_id")
        assert [tuple(row.values()) for row in rows(trace, "tensor", *columns)] == [
            ("alloc", 512, 512, "cuda", 0, 7),
            ("free", 512, None, "cpu", None, None),
        ]


def test_correlation_ids_under_the_name_of_external_ids_do_not_join_operators(tmp_path: Path) -> None:
    # 2022 and 2023: "External id" of calls and device work is their own correlation id.
    events = [
        op("aten::relu", 0, 900, External_id=30),
        op("aten::add", 1000, 5000, External_id=31),
        call("cudaLaunchKernel", 2000, 3000, correlation=30, External_id=30),
        kernel("add", 8000, 9000, correlation=30, External_id=30),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "kernel", "op_id") == [31]


def test_work_whose_call_is_missing_is_kept_counted_and_joined_by_its_external_id(tmp_path: Path) -> None:
    events = [
        op("aten::add", 1000, 5000, External_id=31),
        kernel("orphan", 6000, 7000, correlation=5),
        kernel("named", 8000, 9000, correlation=6, External_id=31),
        kernel("dangling", 9000, 9500, correlation=7, External_id=999),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "kernel", "op_id") == [None, 31, None]
        assert trace.manifest["import"]["unmatched"] == {"kernel without its launch call in the file": 3}


def test_kernels_of_a_graph_share_one_launch_call(tmp_path: Path) -> None:
    launched = [kernel(f"node{n}", 5000 + n, 5001 + n, correlation=9, graph_id=4, graph_node_id=n) for n in range(3)]
    events = [op("replay", 0, 2000, External_id=1), call("cudaGraphLaunch", 100, 200, correlation=9), *launched]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "kernel", "op_id") == [1, 1, 1]
        assert column(trace, "kernel", "graph_node_id") == [0, 1, 2]
        assert column(trace, "kernel", "grid_x") == [None, None, None]
        assert column(trace, "kernel", "launch_id") == [1, 2, 3]


def test_launches_are_numbered_by_their_calls_and_not_by_when_they_ran(tmp_path: Path) -> None:
    events = [
        *(call("cudaLaunchKernel", 100, 200, correlation=1), call("cudaLaunchKernel", 300, 400, correlation=2)),
        *(kernel("second", 500, 600, correlation=2), kernel("first", 700, 800, correlation=1)),
        kernel("older", 550, 580, correlation=77),
    ]
    with imported(tmp_path, document(events)) as trace:
        numbers = {row["name"]: row["launch_id"] for row in rows(trace, "kernel")}
        assert numbers == {"older": 1, "first": 2, "second": 3}


def test_ids_that_two_events_have_are_told_apart(tmp_path: Path) -> None:
    events = [
        op("one", 0, 1000, External_id=5),
        op("two", 2000, 3000, External_id=5),
        call("cudaLaunchKernel", 100, 200, correlation=1),
        call("cudaLaunchKernel", 2100, 2200, correlation=1),
        kernel("k", 4000, 5000, correlation=1),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert rows(trace, "op", "name", "op_id") == [{"name": "one", "op_id": 5}, {"name": "two", "op_id": 6}]
        assert column(trace, "api", "op_id") == [5, 6]
        assert trace.manifest["import"]["unmatched"] == {
            "operators whose id another operator has too (renumbered)": 1,
            "runtime calls whose correlation id another has too": 1,
        }


def test_training_has_phases(tmp_path: Path) -> None:
    step = event("user_annotation", "Optimizer.step#SGD.step", 9000, 10000)
    events = [
        op("aten::zeros", 0, 500),
        op("aten::linear", 1000, 2000, Sequence_number=3),
        op("aten::addmm", 1100, 1900),
        op("aten::dropout", 2000, 2500, Sequence_number=4),
        op("autograd::engine::evaluate_function: AddmmBackward0", 5000, 6000, Sequence_number=3, Fwd_thread_id=1),
        op("aten::mm", 5100, 5900),
        *(step, op("aten::add_", 9100, 9200)),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert {row["name"].split(":")[-1]: row["phase"] for row in rows(trace, "op")} == {
            **{"zeros": "other", "linear": "forward", "addmm": "forward", "dropout": "other"},
            **{" AddmmBackward0": "backward", "mm": "backward", "add_": "optimizer"},
        }


def test_operators_are_in_the_modules_whose_calls_enclose_them(tmp_path: Path) -> None:
    def frame(name: str, start: int, end: int, number: int, parent: int | None) -> dict[str, object]:
        return event("python_function", name, start, end, Python_id=number, Python_parent_id=parent)

    events = [
        frame("nn.Module: Net_0", 0, 9000, 1, None),
        frame("net.py(7): forward", 100, 8900, 2, 1),
        frame("nn.Module: Linear_3", 200, 5000, 3, 2),
        op("aten::linear", 300, 4000),
        op("aten::relu", 6000, 7000),
        op("aten::loss", 9500, 9900),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "op", "module") == ["Net_0.Linear_3", "Net_0", None]
        ranges = {row["range_id"]: (row["name"], row["parent_id"]) for row in rows(trace, "range")}
        assert ranges == {
            1: ("nn.Module: Net_0", None),
            2: ("net.py(7): forward", 1),
            3: ("nn.Module: Linear_3", 2),
        }


def test_annotations_nest_and_say_who_wrote_them(tmp_path: Path) -> None:
    events = [event("user_annotation", "step", 0, 900), event("user_annotation", "part", 100, 200)]
    with imported(tmp_path, document(events)) as trace:
        columns = ("name", "parent_id", "kind", "source", "category")
        assert [tuple(row.values()) for row in rows(trace, "range", *columns)] == [
            ("step", None, "push_pop", "record_function", "user_annotation"),
            ("part", 1, "push_pop", "record_function", "user_annotation"),
        ]


FOLDER = real_traces.folder()
#: Files of versions whose "External id" names the operator.
LINKED = ("kineto_resnet50_2021", "hta_nccl", "tl_h100_qwen", "tl_mi300_qwen", "tl_mi300_resnet_ckpt")


@pytest.mark.skipif(FOLDER is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
@pytest.mark.parametrize("name", LINKED)
def test_nesting_by_time_finds_the_operators_that_external_ids_name(name: str, tmp_path: Path) -> None:
    # The file's own links are an independent witness: 99 % of them or more name an operator, and all agree.
    assert FOLDER is not None
    path = FOLDER / "kineto" / f"{name}.json.gz"
    import_files([path], tmp_path / "out.pasta")
    stated = {}
    for batch in event_stream(Source.of(path, tmp_path)).batches():
        for item in batch:
            if item.cat in ("cuda_runtime", "cuda_driver", "Runtime"):
                link = item.args.get("External id", item.args.get("external id"))
                if link is not None:
                    stated[item.args["correlation"]] = link
    with Trace.open(tmp_path / "out.pasta") as trace:
        ops = set(trace.op.select("op_id").collect()["op_id"])
        calls = trace.api.select("correlation_id", "op_id").collect()
    known = {key: link for key, link in stated.items() if link in ops}
    assert len(known) > 0.98 * len(stated)
    found = dict(calls.filter(pl.col("correlation_id").is_in(list(known))).iter_rows())
    assert found == known
