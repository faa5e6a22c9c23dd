"""Kernels that loopy generates, launched by loopy: opencl_library.py PLATFORM CASE

Prints a JSON list of digests of the results, each of which was compared with numpy's.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from typing import Any

os.environ["PYOPENCL_NO_CACHE"] = "1"  # as `--memory` has it
os.environ["LOOPY_NO_CACHE"] = "1"

import loopy as lp
import numpy as np
import pyopencl as cl
import pyopencl.array
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2  # noqa: F401

warnings.simplefilter("ignore")

N, EDGE, TILE = 4096, 32, 8


def digest(got: Any, expected: Any) -> str:
    array = np.ascontiguousarray(got.get())
    np.testing.assert_allclose(array, expected, rtol=1e-5)
    return hashlib.sha256(array.tobytes()).hexdigest()


def saxpy(queue: cl.CommandQueue) -> str:
    """y = a x + y, a work-item for each element."""
    kernel = lp.make_kernel(
        "{[i]: 0 <= i < n}",
        "y[i] = a * x[i] + y[i]",
        [lp.GlobalArg("x, y", np.float32, shape="n"), lp.ValueArg("a", np.float32), lp.ValueArg("n", np.int32)],
        name="saxpy",
    )
    kernel = lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    on_device = cl.array.to_device(queue, y)
    kernel.executor(queue.context)(queue, x=cl.array.to_device(queue, x), y=on_device, a=np.float32(3), n=np.int32(N))
    return digest(on_device, 3 * x + y)


def matmul(queue: cl.CommandQueue, tiled: bool) -> str:
    """c = a b, an element a work-item, which reads its row and column; or tiles of them by way of local memory."""
    kernel = lp.make_kernel(
        f"{{[i, j, k]: 0 <= i, j, k < {EDGE}}}",
        "c[i, j] = sum(k, a[i, k] * b[k, j])",
        [lp.GlobalArg("a, b, c", np.float32, shape=(EDGE, EDGE))],
        name="tiled" if tiled else "naive",
    )
    kernel = lp.split_iname(kernel, "i", TILE, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", TILE, outer_tag="g.0", inner_tag="l.0")
    if tiled:
        kernel = lp.split_iname(kernel, "k", TILE)
        for array, tile in (("a", ["k_inner", "i_inner"]), ("b", ["j_inner", "k_inner"])):
            outer = frozenset({"i_outer", "j_outer", "k_outer"})
            kernel = lp.add_prefetch(kernel, array, tile, fetch_outer_inames=outer, default_tag="l.auto")
    a = (np.arange(EDGE * EDGE, dtype=np.float32) % 7).reshape(EDGE, EDGE)
    b = (np.arange(EDGE * EDGE, dtype=np.float32) % 5).reshape(EDGE, EDGE)
    out = cl.array.zeros(queue, (EDGE, EDGE), np.float32)
    inputs = {name: cl.array.to_device(queue, array) for name, array in (("a", a), ("b", b))}
    kernel.executor(queue.context)(queue, c=out, **inputs)
    return digest(out, a @ b)


if __name__ == "__main__":
    (device,) = next(p for p in cl.get_platforms() if sys.argv[1] in p.name).get_devices()[:1]
    context = cl.Context([device])
    first = cl.CommandQueue(context)
    print(json.dumps([saxpy(first), matmul(first, False), matmul(first, True)]))
