"""Phase, nesting, sequence and module of operators, for programs whose structure is known."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from torch_runs import python, recorded

pytest.importorskip("torch")

_PRELUDE = """
import torch
from torch import nn
torch.set_num_threads(1)
"""


def _ops(output: Path, program: str, **environment: str) -> pl.DataFrame:
    trace = recorded(output, *python(_PRELUDE + program), environment=environment)
    return trace.table("op").collect().sort("start_ns")


def _top(ops: pl.DataFrame) -> pl.DataFrame:
    return ops.filter(pl.col("parent_id").is_null())


def test_training_step_has_three_phases(tmp_path: Path) -> None:
    ops = _ops(
        tmp_path / "trace",
        """
weight = torch.ones(3, 3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
weight.mm(weight.detach()).relu().sum().backward()
optimizer.step()
""",
    )
    top = _top(ops)
    assert top.filter(name="aten::mm")["phase"].to_list() == ["forward"]
    engine = pl.col("name").str.starts_with("autograd::engine::evaluate_function: ")
    # Nodes of the graph, last operator first: sum, relu, mm, and the leaf.
    nodes = top.filter(engine)["name"].str.split(": ").list.last().to_list()
    assert nodes == ["SumBackward0", "ReluBackward0", "MmBackward0", "torch::autograd::AccumulateGrad"]
    assert top.filter(engine)["phase"].unique().to_list() == ["backward"]
    # Plain SGD on one parameter adds once.
    assert top.filter(phase="optimizer")["name"].to_list() == ["aten::add_"]


def test_children_lie_within_their_parent_and_share_its_phase(tmp_path: Path) -> None:
    ops = _ops(
        tmp_path / "trace",
        """
layer = nn.Linear(4, 4)
layer(torch.ones(2, 4)).sum().backward()
""",
    )
    joined = ops.join(ops, left_on="parent_id", right_on="op_id", suffix="_parent")
    assert joined.height > 10
    inside = (pl.col("start_ns") >= pl.col("start_ns_parent")) & (pl.col("end_ns") <= pl.col("end_ns_parent"))
    same = (pl.col("phase") == pl.col("phase_parent")) & (pl.col("thread_id") == pl.col("thread_id_parent"))
    assert joined.select((inside & same).all()).item()
    addmm = joined.filter(name="aten::addmm")
    assert addmm["name_parent"].to_list() == ["aten::linear"]


def test_sequence_joins_backward_with_forward(tmp_path: Path) -> None:
    ops = _ops(
        tmp_path / "trace",
        """
x = torch.ones(3, requires_grad=True)
y = x.exp()
z = y.sin()
z.sum().backward()
""",
    )
    for forward, backward in [
        ("aten::exp", "ExpBackward0"),
        ("aten::sin", "SinBackward0"),
        ("aten::sum", "SumBackward0"),
    ]:
        numbers = _top(ops).filter(name=forward)["sequence"].to_list()
        assert len(numbers) == 1
        assert numbers[0] is not None
        assert ops.filter(name=backward)["sequence"].to_list() == numbers


def test_without_autograd_the_phase_is_other(tmp_path: Path) -> None:
    ops = _ops(
        tmp_path / "trace",
        """
x = torch.ones(3)
with torch.no_grad():
    x.exp()
with torch.inference_mode():
    x.sin()
x.cos()
""",
    )
    phases = dict(_top(ops).select("name", "phase").iter_rows())
    assert phases["aten::exp"] == "other"
    assert phases["aten::sin"] == "other"
    assert phases["aten::cos"] == "forward"


def test_custom_function_and_recomputation(tmp_path: Path) -> None:
    ops = _ops(
        tmp_path / "trace",
        """
from torch.utils.checkpoint import checkpoint
class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.atan()
    @staticmethod
    def backward(ctx, grad):
        return grad.asinh()
x = torch.ones(3, requires_grad=True)
checkpoint(lambda t: Custom.apply(t).tan(), x, use_reentrant=False).sum().backward()
""",
    )
    # Called in the forward pass, and again in the backward pass to recompute what was not kept.
    assert ops.filter(name="aten::atan")["phase"].to_list() == ["forward", "backward"]
    assert ops.filter(name="aten::tan")["phase"].to_list() == ["forward", "backward"]
    assert ops.filter(name="aten::asinh")["phase"].to_list() == ["backward"]
    assert ops.filter(name="Custom")["phase"].to_list() == ["forward", "backward"]


_MODEL = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    def forward(self, x):
        if x.shape[0] == 1:
            raise ValueError("batch of one")
        return self.inner(x).exp()
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.neg()
model = Model()
try:
    model(torch.ones(1, 4))
except ValueError:
    pass
model(torch.ones(2, 4)).sum().abs()
"""


def test_module_paths_on_request(tmp_path: Path) -> None:
    ops = _top(_ops(tmp_path / "trace", _MODEL, PASTA_TORCH_MODULES="1"))
    modules = ops.filter(pl.col("module").is_not_null()).select("name", "module").rows()
    assert modules == [
        ("aten::linear", "blocks.0.inner.0"),
        ("aten::tanh", "blocks.0.inner.1"),
        ("aten::exp", "blocks.0"),
        ("aten::linear", "blocks.1.inner.0"),
        ("aten::tanh", "blocks.1.inner.1"),
        ("aten::exp", "blocks.1"),
        ("aten::neg", "Model"),
    ]
    assert ops.filter(name="aten::abs")["module"].to_list() == [None]


def test_no_module_paths_unless_requested(tmp_path: Path) -> None:
    ops = _ops(tmp_path / "trace", _MODEL)
    assert ops["module"].null_count() == ops.height
