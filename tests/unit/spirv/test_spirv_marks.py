"""Lines of accesses that share one mark: members of a struct, values read and written back, loops around them."""

from __future__ import annotations

import numpy as np
import pytest
from spirv_harness import Kernel, buffer

pytestmark = pytest.mark.usefixtures("device")


def lines_of(starts: np.ndarray, size: int) -> int:
    """Distinct 64-byte lines of accesses of `size` bytes at these offsets of an object that begins at a line."""
    return len(np.unique(np.concatenate([starts // 64, (starts + size - 1) // 64])))


@pytest.mark.parametrize("seed", range(6))
def test_members_of_a_struct_touch_exactly_their_lines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = int(rng.integers(5, 80))  # of 4 bytes, in a struct
    members = np.sort(rng.choice(words, int(rng.integers(2, 6)), replace=False))
    step = int(rng.integers(1, 4))
    body = "".join(f"s[i * {step}].w[{m}] += {m} + i;" for m in rng.permutation(members))
    source = f"""
    typedef struct {{ int w[{words}]; }} S;
    kernel void touch(global S *s) {{ size_t i = get_global_id(0); {body} }}"""
    n = 50
    result = Kernel(source, "touch", extents=True).run((n,), None, buffer(4 * words * n * step))
    starts = (np.arange(n)[:, None] * step * words + members).ravel() * 4
    found = result.object(0)
    assert (found["loads"], found["stores"]) == (len(starts), len(starts))
    assert found["lines"] == lines_of(starts, 4)
    assert (found["first_offset"], found["last_offset"]) == (starts.min(), starts.max() + 3)


def test_neighbours_at_a_varying_place() -> None:
    source = """
    kernel void window(global const float *in, global float *out, int at) {
      int i = get_global_id(0) + at;
      out[i] = in[i - 1] + in[i] + in[i + 1] + in[i + 15];
    }"""
    n, at = 40, 77
    result = Kernel(source, "window", extents=True).run((n,), None, buffer(4 * 200), buffer(4 * 200), np.int32(at))
    starts = 4 * (np.arange(n)[:, None] + at + np.array([-1, 0, 1, 15])).ravel()
    assert result.object(0)["lines"] == lines_of(starts, 4)
    assert (result.object(0)["first_offset"], result.object(0)["last_offset"]) == (starts.min(), starts.max() + 3)


def test_an_access_on_one_path_does_not_stand_for_another_path() -> None:
    source = """
    kernel void paths(global int *p) {
      int i = get_global_id(0);
      if (i & 1) p[i * 16] = 1; else p[i * 16 + 1000] = 2;
      if (i < 8) p[i * 16] += p[i * 16 + 1000];
    }"""
    n = 32
    result = Kernel(source, "paths").run((n,), None, buffer(4 * 2000))
    i = np.arange(n)
    first, second = 64 * i, 64 * i + 4000
    starts = np.concatenate([first[i % 2 == 1], second[i % 2 == 0], first[i < 8], second[i < 8]])
    assert result.object(0)["lines"] == lines_of(starts, 4)


def test_an_address_that_changes_in_a_loop_is_marked_each_time() -> None:
    source = """
    kernel void walk(global int *p, int n) {
      int at = get_global_id(0);
      p[at] = 0;
      for (int k = 0; k < n; ++k) {
        p[at] += 1;
        at = (at * 5 + 16) & 1023;
      }
      p[at] = 7;
    }"""
    n, turns = 64, 9
    result = Kernel(source, "walk").run((n,), (1,), buffer(4 * 1024), np.int32(turns))
    touched = set()
    for item in range(n):
        at = item
        for _ in range(turns + 1):
            touched.add(at // 16)
            at = (at * 5 + 16) & 1023
    assert result.object(0)["lines"] == len(touched)
