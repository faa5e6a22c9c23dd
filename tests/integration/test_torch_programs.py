"""Programs that use torch in every way that a profiler may trip over: threads, forks, exceptions, exits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from torch_runs import PROGRAMS, python, record, recorded, run

from pasta.trace import Trace

pytest.importorskip("torch")


def _ops(trace: Trace) -> pl.DataFrame:
    return trace.table("op").collect().sort("start_ns")


def _no_losses(trace: Trace) -> bool:
    return trace.table("loss").collect().is_empty()


def test_first_operator_is_caught(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "trace", *python("import torch; torch.empty(3)"))
    assert _ops(trace)["name"].to_list() == ["aten::empty"]
    assert trace.table("tensor").collect()["bytes"].to_list() == [12, 12]  # 3 floats, created and freed


def test_torch_that_is_not_used(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "trace", *python("import torch; print(torch.__version__)"))
    assert _ops(trace).is_empty()
    assert "torch: 2." in trace.table("process").collect()["backends"].item()


def test_exception_in_an_operator(tmp_path: Path) -> None:
    program = """
import torch
x = torch.ones(2, 3)
for _ in range(3):
    try:
        torch.nn.functional.linear(x, x.t())
    except RuntimeError:
        x.neg()
"""
    trace = recorded(tmp_path / "trace", *python(program))
    ops = _ops(trace)
    # A failed operator has a row, and what follows it is not inside of it.
    assert ops.filter(name="aten::linear").height == 3
    assert ops.filter(name="aten::neg")["parent_id"].to_list() == [None] * 3


def test_immediate_exit_loses_nothing(tmp_path: Path) -> None:
    program = """
import os, torch
x = torch.ones(2)
for _ in range(1000):
    x.neg()
os._exit(3)
"""
    result = record(tmp_path / "trace", *python(program))
    assert result.status == 3
    assert _ops(Trace.open(tmp_path / "trace")).filter(name="aten::neg").height == 1000


def test_fork_inside_an_annotation(tmp_path: Path) -> None:
    program = """
import os, torch
x = torch.ones(2)
with torch.autograd.profiler.record_function("outer"):
    x.neg()
    child = os.fork()
    if child == 0:
        x.exp()
    else:
        os.waitpid(child, 0)
        x.sin()
if child == 0:
    x.cos()
    os._exit(0)
print(child)
"""
    result = record(tmp_path / "trace", *python(program))
    trace = Trace.open(tmp_path / "trace")
    child = int(result.stdout)
    ops = _ops(trace).filter(pl.col("parent_id").is_null())
    assert ops.filter(pid=child)["name"].to_list() == ["aten::exp", "aten::cos"]
    assert ops.filter(pl.col("pid") != child)["name"].to_list()[-2:] == ["aten::neg", "aten::sin"]
    # The annotation began in the parent: it is the parent's, once.
    ranges = trace.table("range").filter(pl.col("name") == "outer").collect()
    assert ranges.height == 1
    assert ranges["pid"].item() != child
    assert _no_losses(trace)


def test_threads_keep_their_own_stacks(tmp_path: Path) -> None:
    program = """
import threading, torch
torch.set_num_threads(1)
def work():
    layer = torch.nn.Linear(4, 4)
    for _ in range(50):
        layer(torch.ones(2, 4)).sum().backward()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    trace = recorded(tmp_path / "trace", *python(program))
    ops = _ops(trace)
    assert ops.filter(name="aten::linear").group_by("thread_id").len()["len"].to_list() == [50] * 4
    joined = ops.join(ops, left_on="parent_id", right_on="op_id", suffix="_parent")
    assert joined.height == ops["parent_id"].count()  # every parent is there
    assert (joined["thread_id"] == joined["thread_id_parent"]).all()
    assert ops["op_id"].n_unique() == ops.height
    assert _no_losses(trace)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(tmp_path: Path, method: str) -> None:
    trace = recorded(tmp_path / "trace", *python(PROGRAMS / "load_data.py", method))
    # Each of the six samples is made by `arange` in one of two workers.
    made = _ops(trace).filter(pl.col("name") == "aten::arange", pl.col("parent_id").is_null())
    counts = Counter(made["pid"])
    workers = set(trace.table("process").collect()["pid"]) - {_main_pid(trace)}
    assert sum(counts[pid] for pid in workers) == 6
    assert len(workers & set(counts)) == 2


def _main_pid(trace: Trace) -> int:
    processes = trace.table("process").collect()
    pids = set(processes["pid"])
    (main,) = (pid for pid, parent in processes.select("pid", "parent_pid").iter_rows() if parent not in pids)
    return int(main)


COMPILED = """
import torch, torch._dynamo.utils
layers = [module for _ in range(8) for module in (torch.nn.Linear(16, 16), torch.nn.GELU())]
model = torch.compile(torch.nn.Sequential(*layers), backend="aot_eager")
with torch.no_grad():
    for rows in (4, 4, 4, 5, 6, 7):  # another size makes torch compile once more, then for any size
        model(torch.ones(rows, 16))
counters = torch._dynamo.utils.counters
print({name: dict(counters[name]) for name in ("frames", "stats", "graph_break", "recompile_limit")})
"""


@pytest.mark.parametrize("modules", [False, True])
def test_torch_compile_compiles_what_it_compiles_alone(tmp_path: Path, modules: bool) -> None:
    """As many frames and graphs, no break: a hook that torch cannot trace, or that changes a guard, would add some."""
    alone = run(*python(COMPILED))
    assert "'unique_graphs': 2" in alone.stdout, alone.stderr
    assert record(tmp_path / "trace", *python(COMPILED), torch_modules=modules).stdout == alone.stdout


def test_script_and_compile(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "trace", *python(PROGRAMS / "script_and_compile.py"))
    ops = _ops(trace)
    after = ops.filter(pl.col("start_ns") > ops.filter(name="aten::tan")["start_ns"].item())
    assert after.filter(name="aten::sin").height == 3
    assert ops.filter(name="f").height == 3  # the TorchScript function
    assert _no_losses(trace)


def test_asynchronous_collective_is_a_free_range(tmp_path: Path) -> None:
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(4)
work = dist.all_reduce(x, async_op=True)
x.neg()
work.wait()
dist.destroy_process_group()
"""
    result = run(*python("import torch; print(torch.distributed.is_gloo_available())"))
    if result.stdout.strip() != "True":
        pytest.skip("this torch has no gloo")
    trace = recorded(tmp_path / "trace", *python(program))
    reduces = trace.table("range").filter(pl.col("name") == "gloo:all_reduce").collect()
    assert reduces["kind"].to_list() == ["start_end"]
    assert _no_losses(trace)


def test_nested_annotations(tmp_path: Path) -> None:
    program = """
import torch
record = torch.autograd.profiler.record_function
x = torch.ones(3)
with record("outer"):
    for i in range(2):
        with record("inner"):
            x.neg()
"""
    trace = recorded(tmp_path / "trace", *python(program))
    ranges = trace.table("range").collect()
    outer = ranges.filter(name="outer")["range_id"].item()
    assert ranges.filter(name="inner")["parent_id"].to_list() == [outer] * 2


def test_annotation_that_ends_on_another_thread_is_lost_and_said_so(tmp_path: Path) -> None:
    program = """
import threading, torch
x = torch.ones(3)
with torch.autograd.profiler.record_function("around"):
    annotation = torch.autograd.profiler.record_function("crosses")
    annotation.__enter__()
    thread = threading.Thread(target=annotation.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
x.neg()
"""
    trace = recorded(tmp_path / "trace", *python(program))
    loss = trace.table("loss").collect()
    assert loss.select("source", "table", "records").rows() == [("torch", "range", 1)]
    # What is around it and after it is whole.
    assert "around" in trace.table("range").collect()["name"].to_list()
    assert _ops(trace).filter(name="aten::neg")["parent_id"].to_list() == [None]


def test_only_what_is_inside_the_capture_range(tmp_path: Path) -> None:
    program = """
import torch
x = torch.ones(3)
x.neg()
with torch.autograd.profiler.record_function("step"):
    y = x.exp()
del y
x.sin()
"""
    trace = recorded(tmp_path / "trace", *python(program), capture_range="range", range_name="step")
    assert _ops(trace)["name"].to_list() == ["aten::exp"]
    # What an address is, is known all the same: x and the four results, and the frees of all but x.
    tensors = trace.table("tensor").collect()
    assert Counter(tensors["action"])["alloc"] == 4
    assert trace.table("range").collect()["name"].to_list() == ["step"]


def test_only_the_tables_that_were_asked_for(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "trace", *python("import torch; torch.ones(3).neg()"), trace="op")
    assert "op" in trace.present
    assert "tensor" not in trace.present


def test_isolated_python_still_has_operators(tmp_path: Path) -> None:
    # -I ignores PYTHONPATH: no import hook. The first allocation installs the callbacks, inside of the first
    # operator; its version is not known then.
    program = "import torch; x = torch.ones(3); x.neg(); x.exp()"
    interpreter, *rest = python(program)
    trace = recorded(tmp_path / "trace", interpreter, "-I", *rest)
    assert _ops(trace)["name"].to_list()[-2:] == ["aten::neg", "aten::exp"]
    assert "version unknown, self-test passed" in trace.table("process").collect()["backends"].item()
