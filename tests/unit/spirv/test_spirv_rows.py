"""Lines that the first work-item of a row marks for all of it: those of the trace, where each speaks for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spirv_harness import Kernel, Result, buffer, native

pytestmark = pytest.mark.usefixtures("device")

#: The accesses of `a`, `b` and `s`, in any order: whether a row makes it together, a constant apart. An access whose
#: lines another one marks (marks.h) makes none itself.
CASES = {
    "by_size_t": ("size_t i = get_global_id(0); b[i] = a[i];", [True, True]),
    "by_int": ("int i = get_global_id(0); b[i + n] = a[2 * i] + a[3 + (i << 1)];", [True, True, True]),
    "by_local_id": ("b[get_group_id(0) * 64 + get_local_id(0)] = 1;", [True]),
    "by_linear_id": ("b[get_global_linear_id()] = a[get_local_linear_id()];", [True, True]),
    "backwards": ("int i = get_global_id(0); b[900 - i] = a[n * 100 - i];", [True, True]),
    "with_gaps_below_a_line": ("int i = get_global_id(0); b[16 * i] = a[17 * i];", [False, True]),
    "one_for_all": ("b[get_group_id(0) + 40 * get_global_id(1)] = a[n];", [True, True]),
    "by_rows": ("b[get_global_id(1) * 100 + get_global_id(0)] = a[get_global_id(0) * 100 + get_global_id(1)];",
                [True, True]),
    "by_columns": ("int x = get_global_id(0), y = get_global_id(1); if (x & 1) b[x * n * 9 + 90 - y] += a[n * n];",
                   [True, False, False]),
    "through_layers": (
        "if (get_global_id(0) + get_local_id(1) & 1) b[(get_local_id(1) & 3) * 50 + get_global_id(2)] = 1;", [True]),
    "parted_by_each": ("if (get_local_linear_id() & 1) b[get_global_id(1)] = 1; else b[(int)get_global_id(1)] = 2;",
                       [False, False]),
    "through_constant_memory": ("int i = get_global_id(0); b[c[n] + i] = 1; b[c[i & 3] + i] = 2;", [True, False]),
    "through_other_memory": ("int i = get_global_id(0); b[(int)a[0] + i] = 1;", [True, False]),
    "in_a_loop": ("int i = get_local_id(0); for (int k = 0; k < n; ++k) b[k * 48 + i] += a[n * i + k];",
                  [True, False, False]),
    "moving_pointer": ("global float *p = b + get_global_id(0); for (int k = 0; k < n; ++k, p += 100) *p = k;", [True]),
    "after_a_guard": ("int i = get_global_id(0); if (i >= 20) return; b[i] = 1;", [False]),
    "under_a_guard": ("int i = get_global_id(0); if (i < 20) b[i] = 1; a[i] = 2;", [False, True]),
    "guarded_by_the_row": ("if (get_global_id(1) & n) b[get_global_id(0)] = 1; else a[get_global_id(0)] = 1;",
                           [True, True]),
    "after_a_loop_of_one_each": (
        "int i = get_global_id(0); int k = 0; for (; k < (i & 7); ++k) b[k] = 1; b[i + 50] = 2; b[k + 300] = 3;",
        [False, True, False]),
    "left_early": (
        "int i = get_global_id(0); for (int k = 0; k < 9; ++k) { b[k * 64 + i] = 1; if (i == k) break; } a[i] = 2;",
        [False, True]),
    "switched": ("int i = get_global_id(0); switch (n) { case 1: i += 3; break; case 5: i += 7; } b[i] = 1;", [True]),
    "switched_by_itself": (
        "int i = get_global_id(0); switch (i & 3) { case 1: i += 3; break; case 2: i += 7; } b[i] = 1;", [False]),
    "chosen_for_all": ("int i = get_global_id(0); b[n > 3 ? i + 8 : i] = 1; b[n > 3 ? i : 5] = 1;", [True, False]),
    "chosen_apart": ("int i = get_global_id(0); b[i & 1 ? i + 9 : i] = 1;", [False]),
    "in_a_function": ("int i = get_global_id(0); put(b, i); if (i & 1) put(a, i);", [True, False]),
    "in_a_function_called_twice": ("put(b, get_global_id(0) + 3); put(b, n);", [False]),
    "vectors": ("size_t i = get_global_id(0); vstore4(vload4(i, a), i + 1, b); vstore3((float3)(1), i, b + 1);",
                [True, True, True]),
    "members": ("size_t i = get_global_id(0); s[i].y = s[i + 1].x; s[i].z[1] = 1; s[i].z[i & 1] = 1;",
                [True, False, False, False]),
    "a_byte_that_wraps_around": (
        "uchar i = get_global_id(0) + 250; b[i] = 1; char j = get_global_id(0) + 120; (b + 200)[j] = 2;",
        [True, True]),
    "a_byte_in_a_sum": ("uchar i = get_global_id(0) + 250; b[i + n] = 1;", [False]),
}
HEAD = """
typedef struct { float x, y, z[2]; } S;
void put(global float *p, int i) { p[i] = i; }
kernel void rows(global float *a, global float *b, global S *s, constant int *c, int n) {"""
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None]] = [
    ((96,), (32,), None),
    ((70,), (7,), None),
    ((75,), (32,), None),  # the last work-group is smaller
    ((40,), (1,), None),
    ((60,), None, (11,)),
    ((36, 6), (12, 3), None),
    ((36, 5), (5, 2), (4, 3)),
    ((8, 20), (1, 10), None),
    ((12, 4, 6), (4, 2, 3), None),
]
BYTES = 1 << 16
GRANULES = ("lines", "pages_4k", "pages_64k", "pages_2m")


def lines(objects: list[dict[str, Any]]) -> dict[int, list[int | None]]:
    """By object: what was touched, to the line."""
    def down(offset: int | None) -> int | None:
        return None if offset is None else offset // 64

    return {
        o["object_id"]: [*(o[g] for g in GRANULES), down(o["first_offset"]), down(o["last_offset"])] for o in objects
    }


@pytest.mark.parametrize("case", CASES)
def test_lines_are_those_of_every_work_item(case: str) -> None:
    body, along = CASES[case]
    kernel = Kernel(f"{HEAD} {body} }}", "rows", trace=True)
    is_float = lambda site: site["space"] == "global"  # noqa: E731
    sites = kernel.plan.sites
    assert sorted(s["along_row"] for s in sites if is_float(s)) == sorted(along)
    for shape, group, offset in SHAPES:
        constants = buffer(np.array([3, 40, 8, 21, 7, 99], np.int32))
        result = kernel.run(shape, group, buffer(BYTES), buffer(BYTES), buffer(BYTES), constants, np.int32(5),
                            trace_records=100000, global_offset=offset)
        assert result.trace_lost == 0
        assert lines(result.objects) == lines(result.from_trace()["objects"]), (shape, group, offset)


def scattered() -> Result:
    kernel = Kernel(f"{HEAD} {CASES['by_int'][0]} }}", "rows")
    arguments = (buffer(BYTES), buffer(BYTES), buffer(BYTES), buffer(64), np.int32(1))
    return kernel.run((64,), (16,), *arguments)


def test_a_device_of_other_sub_groups_counts_no_lines() -> None:
    result = scattered()
    assert not result.lines_lost
    assert result.object(1)["lines"] == 5  # 64 floats from the second on
    slot = bytearray(result.slot)
    slot[5 * 8] = 1  # what a sub-group that is no part of a row writes
    decoded = native().decode(result.plan, result.binding, 64, bytes(slot))
    assert decoded["lines_lost"]
    assert {o["lines"] for o in decoded["objects"]} == {None}
    assert [o["stores"] for o in decoded["objects"]] == [o["stores"] for o in result.objects]
