"""The `kernels` tool on four launches whose statistics are computed by hand."""

from __future__ import annotations

import polars as pl
from golden import US, result_of, shown, table

from pasta.tools.builtin.kernels import Kernels
from pasta.tools.filters import FilteredTrace
from pasta.tools.testing import MemoryTrace, trace_of


def training() -> MemoryTrace:
    """gemm<4> takes 10 and 20 us, gemm<8> 60 us, relu 10 us: 100 us in all."""
    launches = [
        ("void gemm<4>(float*)", 10, 2, 1),
        ("void gemm<4>(float*)", 20, 2, 1),
        ("void gemm<8>(float*)", 60, 4, 2),
    ]
    kernels = [
        {"name": name, "start_ns": i * 100 * US, "end_ns": (i * 100 + us) * US, "op_id": op, "thread_id": 1,
         "grid_x": grid, "grid_y": 1, "grid_z": 1, "block_x": 32, "block_y": 1, "block_z": 1}
        for i, (name, us, grid, op) in enumerate(launches)
    ]  # fmt: skip
    kernels.append({"name": "relu", "start_ns": 400 * US, "end_ns": 410 * US})
    ops = [{"op_id": 1, "name": "aten::mm"}, {"op_id": 2, "name": "aten::addmm"}]
    ranges = [
        {"name": "step", "kind": "push_pop", "thread_id": 1, "range_id": 1, "start_ns": 0, "end_ns": 500 * US},
        {"name": "first", "kind": "push_pop", "thread_id": 1, "range_id": 2, "parent_id": 1, "start_ns": 0,
         "end_ns": 50 * US},
    ]  # fmt: skip
    return trace_of(kernel=kernels, op=ops, range=ranges)


def test_a_row_a_kernel() -> None:
    # gemm<8>: 60 of 100 us. gemm<4>: 30 us in 2 calls, so mean and median 15. A quarter of the launches each, or two.
    assert shown(result_of("kernels", training())) == table("""
        Kernels
          kernel                calls  of launches %  total µs  of time %              mean µs  median µs  min µs  max µs  p99 µs  grid   block   op
          void gemm<8>(float*)      1           25.0     60.00       60.0  █████████▋    60.00      60.00   60.00   60.00   60.00  4x1x1  32x1x1  aten::addmm
          void gemm<4>(float*)      2           50.0     30.00       30.0  ████▊         15.00      15.00   10.00   20.00   20.00  2x1x1  32x1x1  aten::mm
          relu                      1           25.0     10.00       10.0  █▋            10.00      10.00   10.00   10.00   10.00  -      -       -
    """)  # noqa: E501


def test_base_names_join_the_instances_of_a_template() -> None:
    # gemm: 10 + 20 + 60 = 90 us in 3 calls, median 20; most launches have a grid of 2 and come from aten::mm.
    fields = ("kernel", "calls", "total_ns", "mean_ns", "median_ns", "max_ns", "grid", "op")
    assert shown(result_of("kernels", training(), base=True), *fields) == table("""
        Kernels
          kernel  calls  total µs  mean µs  median µs  max µs  grid   op
          gemm        3     90.00    30.00      20.00   60.00  2x1x1  aten::mm
          relu        1     10.00    10.00      10.00   10.00  -      -
    """)


def test_by_operator() -> None:
    assert shown(result_of("kernels", training(), by="op"), "op", "calls", "total_ns") == table("""
        Kernel time by operator
          op             calls  total µs
          aten::addmm        1     60.00
          aten::mm           2     30.00
          (no operator)      1     10.00
    """)


def test_by_innermost_range() -> None:
    # The first launch, at 0, is in `first`; the launch of relu has no thread: it takes the ranges of its process.
    assert shown(result_of("kernels", training(), by="range"), "range", "calls", "total_ns") == table("""
        Kernel time by range
          range  calls  total µs
          step       3     90.00
          first      1     10.00
    """)


def test_processes_in_parts_give_the_same_as_the_whole() -> None:
    whole = training()
    kernels = whole.table("kernel").collect()
    both = MemoryTrace({"kernel": pl.concat([kernels, kernels.with_columns(pid=pl.lit(2, pl.Int32))])})
    options = Kernels.Options()
    tool = Kernels()
    parts = [tool.partial(FilteredTrace(both, pid=pid), options) for pid in (1, 2)]
    combined = tool.combine(parts, options).tables[0].frame
    assert combined.equals(tool.run(both, options).tables[0].frame)
    assert combined.equals(result_of("kernels", both).tables[0].frame)
    assert combined["calls"].to_list() == [2, 4, 2]


def test_samples_are_the_durations() -> None:
    samples = result_of("kernels", training()).tables[0].samples
    assert samples is not None
    assert samples.frame.rows() == [
        ("relu", 10 * US), ("void gemm<4>(float*)", 10 * US), ("void gemm<4>(float*)", 20 * US),
        ("void gemm<8>(float*)", 60 * US),
    ]  # fmt: skip
