"""pyopencl's own algorithms, checked against numpy: opencl_algorithms.py PLATFORM

Prints a JSON object: ``launches`` (launches of each kernel, counted in Python, at the only place where pyopencl calls
the driver to launch) and ``results`` (a digest of every result).
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.algorithm
import pyopencl.array
import pyopencl.bitonic_sort
import pyopencl.clmath
import pyopencl.clrandom
import pyopencl.elementwise
import pyopencl.reduction
import pyopencl.scan

warnings.simplefilter("ignore")
COUNT = 1 << 14

launches: Counter[str] = Counter()
results: dict[str, str] = {}
_launch = cl._cl.enqueue_nd_range_kernel


def _counted(queue: cl.CommandQueue, kernel: cl.Kernel, *arguments: Any, **options: Any) -> cl.Event:
    launches[kernel.function_name] += 1
    return _launch(queue, kernel, *arguments, **options)


def check(name: str, got: cl.array.Array, expected: Any = None) -> None:
    """Keep a digest of a result, and compare it with what numpy says."""
    array = np.ascontiguousarray(got.get())
    if expected is not None:
        np.testing.assert_allclose(array, expected, rtol=1e-5, err_msg=name)
    results[name] = hashlib.sha256(array.tobytes()).hexdigest()


def main(platform: str) -> None:
    cl._cl.enqueue_nd_range_kernel = _counted
    device = next(p for p in cl.get_platforms() if platform in p.name).get_devices()[0]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    numbers = (np.arange(COUNT, dtype=np.int64) * 2654435761 % 1000).astype(np.int32)
    on_device = cl.array.to_device(queue, numbers)

    add = cl.elementwise.ElementwiseKernel(context, "int *a, int *b, int *out", "out[i] = a[i] + b[i]", "add_them")
    out = cl.array.empty_like(on_device)
    add(on_device, on_device, out)
    check("elementwise", out, 2 * numbers)

    total = cl.reduction.ReductionKernel(
        context, np.int32, neutral="0", reduce_expr="a+b", map_expr="x[i]", arguments="__global int *x", name="total"
    )
    check("reduction", total(on_device), numbers.sum())

    inclusive = cl.scan.InclusiveScanKernel(context, np.int32, "a+b", neutral="0", name_prefix="inclusive")
    check("inclusive scan", inclusive(on_device.copy()), np.cumsum(numbers))
    exclusive = cl.scan.ExclusiveScanKernel(context, np.int32, "a+b", "0", name_prefix="exclusive")
    check("exclusive scan", exclusive(on_device.copy()), np.cumsum(numbers) - numbers)

    kept, count, _ = cl.algorithm.copy_if(on_device, "ary[i] > 500", queue=queue)
    check("copy_if", kept[: int(count.get())], numbers[numbers > 500])
    true, false, count, _ = cl.algorithm.partition(on_device, "ary[i] > 500", queue=queue)
    check("partition", true[: int(count.get())], numbers[numbers > 500])
    check("partition, rest", false[: COUNT - int(count.get())], numbers[numbers <= 500])
    ordered = cl.array.to_device(queue, np.sort(numbers))
    unique, count, _ = cl.algorithm.unique(ordered, queue=queue)
    check("unique", unique[: int(count.get())], np.unique(numbers))

    radix = cl.algorithm.RadixSort(context, "int *ary", key_expr="ary[i]", sort_arg_names=["ary"])
    (by_radix,), _ = radix(on_device, key_bits=10)
    check("radix sort", by_radix, np.sort(numbers))
    bitonic = cl.bitonic_sort.BitonicSort(context)
    by_bitonic, _ = bitonic(on_device.copy(), queue=queue)
    check("bitonic sort", by_bitonic, np.sort(numbers))

    builder = cl.algorithm.ListOfListsBuilder(
        context,
        [("found", np.int32)],
        "void generate(LIST_ARG_DECL USER_ARG_DECL index_type i) { for (int k = 0; k < i % 3; ++k) APPEND_found(i); }",
        arg_decls=[],
    )
    lists, _ = builder(queue, 1000)
    check("list of lists", lists["found"].lists, np.repeat(np.arange(1000), np.arange(1000) % 3))

    philox = cl.clrandom.PhiloxGenerator(context, seed=7)
    uniform = philox.uniform(queue, COUNT, np.float32)
    check("philox", uniform)
    assert 0.49 < float(cl.array.sum(uniform).get()) / COUNT < 0.51
    threefry = cl.clrandom.ThreefryGenerator(context, seed=7)
    check("threefry", threefry.normal(queue, COUNT, np.float32))

    angles = cl.array.to_device(queue, np.linspace(0, 1, COUNT).astype(np.float32))
    check("sin", cl.clmath.sin(angles), np.sin(np.linspace(0, 1, COUNT)))

    # y = A x for a sparse matrix in CSR form: one row of A a work-item.
    program = cl.Program(
        context,
        """kernel void csr_matvec(global const int *first, global const int *column, global const float *value,
                                  global const float *x, global float *y) {
             const int row = get_global_id(0);
             float sum = 0;
             for (int i = first[row]; i < first[row + 1]; ++i) sum += value[i] * x[column[i]];
             y[row] = sum;
           }""",
    ).build()
    lengths = np.arange(1000) % 5
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    column = (np.arange(first[-1]) * 37 % 1000).astype(np.int32)
    value = (np.arange(first[-1]) % 9).astype(np.float32)
    x = (np.arange(1000) % 7).astype(np.float32)
    y = cl.array.zeros(queue, 1000, np.float32)
    inputs = [cl.array.to_device(queue, array).data for array in (first, column, value, x)]
    cl.Kernel(program, "csr_matvec")(queue, (1000,), None, *inputs, y.data)
    check("csr matvec", y, np.add.reduceat(np.append(value * x[column], 0), first[:-1]) * (lengths > 0))

    print(json.dumps({"launches": launches, "results": results}))


if __name__ == "__main__":
    main(sys.argv[1])
