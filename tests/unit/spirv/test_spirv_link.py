"""Linking modules: what one imports is what another exports, and the result is valid and computes the same."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest
from spirv_harness import buffer, compile_source, contents, context, native, open_cl, queue, validate

pytestmark = pytest.mark.usefixtures("compiler")

#: Functions in both directions, a struct by value, variables, and functions of one name that are not the same.
FIRST = """\
typedef struct { int x; float y; } pair;
static int helper(int a) { return a * 3; }
constant int table[4] = {1, 2, 3, 4};
int twice(int x);
void bump(global int *p, pair q);
int call_back(int x) { return x + 5; }
kernel void first(global int *a) {
  int i = get_global_id(0);
  pair q = {helper(a[i]), 1};
  bump(a + i, q);
  a[i] = twice(a[i]) + table[i & 3];
}
"""
SECOND = """\
typedef struct { int x; float y; } pair;
static int helper(int a) { return a * 7; }
extern constant int table[4];
int call_back(int x);
int twice(int x) { switch (x) { case 3: return 6; default: return 2 * x; } }
void bump(global int *p, pair q) { *p += q.x + (int)q.y + call_back(helper(1)); }
kernel void second(global int *a) { a[get_global_id(0)] = helper(table[get_local_id(0) & 3]); }
"""


def expected_of_first(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bumped = a + (3 * a + 1 + (7 + 5))
    return 2 * bumped + 1 + np.arange(a.size) % 4


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("options", ["-cl-std=CL2.0", "-cl-std=CL3.0 -cl-opt-disable", "-cl-std=CL2.0 -g"])
def test_linked_modules_compute_what_their_sources_say(options: str, order: tuple[int, int]) -> None:
    modules = [compile_source(source, options) for source in (FIRST, SECOND)]
    linked = native().link([modules[i] for i in order])
    validate(linked)
    instrumented, plans, skipped, error = native().instrument(linked)
    assert (error, skipped) == ("", {})
    assert {plan.name for plan in plans} == {"first", "second"}
    validate(instrumented)

    cl = open_cl()
    assert cl is not None
    if context() is None:
        pytest.skip("needs the OpenCL runtime of the extra `cpu`")
    program = cl.Program(context(), linked).build()
    data = np.arange(64, dtype=np.int32)
    device = buffer(data)
    program.first(queue(), (64,), None, device)
    np.testing.assert_array_equal(contents(device, data), expected_of_first(data))
    program.second(queue(), (64,), (4,), device)
    np.testing.assert_array_equal(contents(device, data), 7 * (1 + np.arange(64) % 4))


def test_types_and_constants_are_declared_once() -> None:
    """spirv-val refuses a second declaration of a type; a module linked with a copy of itself adds only code."""
    part = compile_source("int twice(int x) { return 2 * x; }")
    other = compile_source("int thrice(int x) { return 3 * x; }")
    linked = native().link([part, other])
    validate(linked)
    assert len(linked) < len(part) + len(other) - 20 * 4  # the header alone has five words


def test_a_function_that_nobody_exports_stays_an_import() -> None:
    caller = "int missing(int x); kernel void k{0}(global int *a) {{ *a = missing({0}); }}"
    linked = native().link([compile_source(caller.format(n)) for n in range(2)])
    validate(linked)
    assert linked.count(b"missing\0") == 2  # its name and its linkage


def test_functions_of_different_types_do_not_fit() -> None:
    caller = compile_source("long other(long x); kernel void k(global long *a) { *a = other(*a); }")
    callee = compile_source("int other(int x) { return x; }")
    with pytest.raises(RuntimeError, match="other has different types"):
        native().link([caller, callee])


def test_damaged_modules_are_refused_or_linked_but_do_no_harm() -> None:
    first, second = (compile_source(source) for source in (FIRST, SECOND))
    generator = random.Random(11)
    refused = 0
    for _ in range(2000):
        words = list(struct.unpack(f"<{len(second) // 4}I", second))
        for _ in range(generator.randint(1, 3)):
            words[generator.randrange(1, len(words))] = generator.choice([0, 1, 0xFFFFFFFF, generator.getrandbits(16)])
        try:
            native().link([first, struct.pack(f"<{len(words)}I", *words)])
        except RuntimeError:
            refused += 1
    assert 0 < refused < 2000
