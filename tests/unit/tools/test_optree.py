"""Sums along the tree of operators against a plain recursive walk."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pasta.tools.analysis.optree import OpTree, op_tree
from pasta.tools.testing import trace_of

#: The parent of operator i is an earlier operator or none: any forest.
forests = st.integers(1, 30).flatmap(
    lambda size: st.tuples(*(st.one_of(st.none(), st.integers(0, i - 1)) if i else st.none() for i in range(size)))
)


def tree_of(parents: tuple[int | None, ...], *, pid: int = 1, first_id: int = 100) -> OpTree:
    rows = [
        {"pid": pid, "op_id": first_id + i, "parent_id": None if p is None else first_id + p, "name": f"n{i % 3}",
         "start_ns": i, "end_ns": 1000 - i}
        for i, p in enumerate(parents)
    ]  # fmt: skip
    return op_tree(trace_of(op=rows))


def ancestors(parents: tuple[int | None, ...], i: int) -> list[int]:
    parent = parents[i]
    return [] if parent is None else [parent, *ancestors(parents, parent)]


@given(forests)
def test_inclusive_is_the_sum_of_the_subtree(parents: tuple[int | None, ...]) -> None:
    own = np.arange(1, len(parents) + 1)
    expected = own.copy()
    for i in range(len(parents)):
        for above in ancestors(parents, i):
            expected[above] += own[i]
    assert tree_of(parents).inclusive(own).tolist() == expected.tolist()


@given(forests)
def test_children_are_direct(parents: tuple[int | None, ...]) -> None:
    own = np.arange(1, len(parents) + 1)
    expected = [sum(int(own[j]) for j, p in enumerate(parents) if p == i) for i in range(len(parents))]
    assert tree_of(parents).children(own).tolist() == expected


@given(forests)
def test_outermost_counts_recursion_once(parents: tuple[int | None, ...]) -> None:
    group = np.arange(len(parents)) % 3
    expected = [all(group[a] != group[i] for a in ancestors(parents, i)) for i in range(len(parents))]
    assert tree_of(parents).outermost(group).tolist() == expected


def test_ids_of_two_processes_do_not_mix() -> None:
    rows = [
        {"pid": pid, "op_id": i, "parent_id": 1 if i == 2 else None, "name": "x", "start_ns": 0, "end_ns": 1}
        for pid in (7, 5)
        for i in (2, 1)
    ]
    tree = op_tree(trace_of(op=rows))
    assert tree.frame.select("pid", "op_id").rows() == [(5, 1), (5, 2), (7, 1), (7, 2)]
    assert tree.parent.tolist() == [-1, 0, -1, 2]


def test_a_cycle_of_parents_is_cut() -> None:
    rows = [{"op_id": i, "parent_id": 3 - i, "name": "x", "start_ns": 0, "end_ns": 1} for i in (1, 2)]
    assert op_tree(trace_of(op=rows)).parent.tolist() == [-1, 0]


def test_parents_that_were_not_recorded_are_none() -> None:
    tree = op_tree(trace_of(op=[{"op_id": 5, "parent_id": 4, "name": "x", "start_ns": 0, "end_ns": 1}]))
    assert tree.parent.tolist() == [-1]
