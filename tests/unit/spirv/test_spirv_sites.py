"""Sites of a kernel, and where their pointers come from."""

from __future__ import annotations

from typing import Any

import pytest
from spirv_harness import compile_source, native

pytestmark = pytest.mark.usefixtures("compiler")


def plan_of(source: str, options: str = "-cl-std=CL3.0") -> Any:
    _, plans, skipped, error = native().instrument(compile_source(source, options))
    assert not error
    assert not skipped
    return plans[0]


def sites(source: str, options: str = "-cl-std=CL3.0") -> list[tuple[Any, ...]]:
    """(kind, space, bytes, argument) of each site; argument None: found out at run time, or a variable."""
    plan = plan_of(source, options)
    roots = plan.roots
    return [
        (s["kind"], s["space"], s["bytes"], None if s["root"] is None else roots[s["root"]]["argument"])
        for s in plan.sites
    ]


@pytest.mark.parametrize("options", ["-cl-std=CL3.0", "-cl-std=CL3.0 -cl-opt-disable"])
def test_origin_through_casts_members_and_helpers(options: str) -> None:
    source = """
    typedef struct { int a; struct { short b[4]; } inner; } S;
    short pick(global S *s, int i) { return s[i].inner.b[i & 3]; }
    kernel void k(global char *raw, global short *out) {
      global S *s = (global S *)(raw + 16);
      int i = get_global_id(0);
      out[i] = pick(s, i);
    }"""
    assert sorted(sites(source, options)) == [("load", "global", 2, 0), ("store", "global", 2, 1)]


def test_a_loop_that_walks_one_buffer_has_one_origin() -> None:
    source = """
    kernel void k(global const int *p, global int *out, int n) {
      global const int *end = p + n;
      int sum = 0;
      for (; p < end; p += 2) sum += *p;
      out[0] = sum;
    }"""
    assert sites(source) == [("load", "global", 4, 0), ("store", "global", 4, 1)]


def test_spaces() -> None:
    source = """
    constant int table[4] = {1, 2, 3, 4};
    kernel void k(global int *g, local int *l, constant int *c) {
      local int fixed[8];
      int mine[4] = {0};
      int i = get_local_id(0);
      mine[i & 3] = c[i];
      fixed[i & 7] = mine[(i + 1) & 3];
      l[i] = fixed[0] + table[i & 3];
      g[i] = l[0];
    }"""
    found = sites(source)
    assert sorted(s[:2] for s in found) == sorted(
        [("load", "constant")] * 2 + [("load", "local")] * 2 + [("store", "local")] * 2 + [("store", "global")]
    )  # private memory is no site


def test_source_lines() -> None:
    source = "kernel void k(global int *p) {\n  p[0] = 1;\n\n  p[1] += 2;\n}\n"
    found = [(s["line"], s["kind"]) for s in plan_of(source).sites]
    assert found == [(2, "store"), (4, "load"), (4, "store")]


def test_atomics_of_every_kind() -> None:
    source = """
    #pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
    kernel void k(global int *p, global long *q, global float *f) {
      atomic_add(p, 1); atomic_cmpxchg(p, 1, 2); atomic_xchg(f, 1.0f); atomic_max(p, 3);
      atom_inc(q);
    }"""
    assert sites(source) == [("atomic", "global", 4, 0)] * 2 + [("atomic", "global", 4, 2)] + [
        ("atomic", "global", 4, 0), ("atomic", "global", 8, 1)]  # fmt: skip


def test_math_functions_that_write_through_a_pointer() -> None:
    source = """
    kernel void k(global float *p, global int *q) {
      int i = get_global_id(0);
      float whole, c;
      p[i] = fract(p[i], &p[i + 1]) + sincos(p[2], &c) + frexp(p[3], &q[i]);
    }"""
    stores = [s for s in sites(source) if s[0] == "store"]
    assert sorted(stores) == [("store", "global", 4, 0), ("store", "global", 4, 0), ("store", "global", 4, 1)]


def test_a_pointer_of_either_of_two_arguments_is_resolved_at_run_time() -> None:
    plan = plan_of("kernel void k(global int *a, global int *b, global int *c, int n) { (n ? a : c)[1] = n; }")
    (site,) = plan.sites
    assert (site["root"], site["dynamic"], site["candidates"]) == (None, 0, [0, 2])


def test_a_pointer_from_memory_may_be_anything_global() -> None:
    plan = plan_of("kernel void k(global ulong *a, global int *b, constant int *c) { *(global int *)a[0] = 1; }")
    stores = [s for s in plan.sites if s["kind"] == "store"]
    assert [s["candidates"] for s in stores] == [[0, 1]]


def test_what_is_not_understood_is_left_alone_and_named() -> None:
    source = """
    void elsewhere(global int *p);
    kernel void good(global int *p) { p[0] = 1; }
    kernel void bad(global int *p) { elsewhere(p); }"""
    module = compile_source(source)
    words, plans, skipped, error = native().instrument(module)
    assert not error
    assert [plan.name for plan in plans] == ["good"]
    assert skipped == {"bad": "a call of elsewhere, whose body is not in the program, with a pointer"}
    assert words
