"""Places of launches in the hidden buffer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from spirv_harness import Kernel, buffer, compile_source, native, open_cl, queue

COPY = "kernel void copy(global const int *in, global int *out) { size_t i = get_global_id(0); out[i] = in[i]; }"


def plan_of(source: str) -> Any:
    return native().instrument(compile_source(source))[1][0]


def bind(plan: Any, *sizes: int) -> Any:
    return native().bind(plan, [native().BoundObject(k, size) for k, size in enumerate(sizes)])


@pytest.mark.usefixtures("compiler")
def test_launches_with_equal_arguments_share_one_binding() -> None:
    plan = plan_of(COPY)
    arena = native().Arena(1 << 20)
    first, second, third = (arena.place(bind(plan, *sizes)) for sizes in ((100, 100), (100, 100), (100, 200)))
    assert first.binding_offset is not None
    assert second.binding_offset is None
    assert third.binding_offset is not None
    assert first.launch_word >> 32 == second.launch_word >> 32
    assert (first.launch_word & 0xFFFFFFFF) * 64 == first.slot_offset == 0
    assert second.slot_offset == bind(plan, 100, 100).slot_bytes


@pytest.mark.usefixtures("compiler")
def test_slots_and_bindings_never_overlap_and_a_full_buffer_says_so() -> None:
    plan = plan_of(COPY)
    arena = native().Arena(1 << 16)
    taken: list[tuple[int, int]] = []
    for launch in range(10000):
        binding = bind(plan, 100 + launch, 100)
        place = arena.place(binding)
        if place is None:
            break
        taken.append((place.slot_offset, place.slot_offset + binding.slot_bytes))
        taken.append((place.binding_offset, place.binding_offset + binding.room_bytes))
    else:
        pytest.fail("64 KiB cannot hold 10000 launches")
    taken.sort()
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))
    assert taken[-1][1] <= 1 << 16
    arena.reset()
    assert arena.place(bind(plan, 100, 100)).binding_offset is not None


@pytest.mark.usefixtures("compiler")
def test_a_launch_too_large_for_the_buffer_is_told_before() -> None:
    plan = plan_of(COPY)
    arena = native().Arena(8192)
    assert not arena.fits(bind(plan, 1 << 30, 1 << 30))
    assert arena.place(bind(plan, 1 << 30, 1 << 30)) is None
    assert arena.fits(bind(plan, 64, 64))


@pytest.mark.usefixtures("device")
def test_many_launches_are_drained_at_once() -> None:
    cl = open_cl()
    assert cl is not None
    kernel = Kernel(COPY, "copy")
    source, target = buffer(4 * 4096), buffer(4 * 4096)
    binding = bind(kernel.plan, 4 * 4096, 4 * 4096)
    launches = []
    cl.enqueue_fill_buffer(queue(), kernel.hidden, np.zeros(1, np.uint8), 0, 300 * binding.slot_bytes)
    kernel.kernel.set_args(source, target, kernel.hidden, np.uint64(0))
    for launch in range(300):
        place = kernel.arena.place(binding)
        if place.binding_offset is not None:
            data = np.frombuffer(binding.data, np.uint8)
            cl.enqueue_copy(queue(), kernel.hidden, data, dst_offset=place.binding_offset)
        kernel.kernel.set_arg(kernel.plan.launch_argument, np.uint64(place.launch_word))
        work_items = 16 * (launch + 1) % 4096 or 16
        cl.enqueue_nd_range_kernel(queue(), kernel.kernel, (work_items,), None)
        launches.append((work_items, place.slot_offset))
    drained = np.empty(kernel.arena.used, np.uint8)
    cl.enqueue_copy(queue(), drained, kernel.hidden)
    queue().finish()
    for work_items, offset in launches:
        slot = drained[offset : offset + binding.slot_bytes].tobytes()
        read, written = native().decode(kernel.plan, binding, work_items, slot)["objects"]
        assert (read["loads"], written["stores"]) == (work_items, work_items)
        assert read["lines"] == written["lines"] == work_items // 16


@pytest.mark.usefixtures("compiler")
def test_a_short_slot_decodes_to_zeros() -> None:
    plan = plan_of(COPY)
    binding = bind(plan, 64, 64)
    for length in (0, 1, 63, 64, 200):
        decoded = native().decode(plan, binding, 0, b"\xff" * length)
        assert decoded["objects"] == []
