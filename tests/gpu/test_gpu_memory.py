"""The memory pass on kernels whose accesses are known in closed form (programs/memory_patterns.cu).

Every expectation follows from the program's text: sizes, strides, a warp of 32 lanes, sectors of 32 bytes, 32 banks
of 4 bytes. A failure prints everything that the trace says about losses and modules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, record

MIB = 1 << 20
N = 1 << 20  # elements of the arrays
WARPS = N // 32
VECTOR = 4 * N  # bytes


def compile_cuda(source: str, folder: Path, *options: str) -> Path:
    """Compile a program of programs/ for the GPU that is here."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    program = folder / Path(source).stem
    command = [nvcc, "-O2", "-std=c++17", "-arch=native", Path(__file__).parent / "programs" / source, "-o", program]
    subprocess.run([*command, *options], check=True)
    return program


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cuda("memory_patterns.cu", tmp_path_factory.mktemp("programs"))


def sanitizer_libraries() -> str:
    """Return the libraries of this Python's wheels, as the launcher hints at those of the target's."""
    places = [Path(entry) for entry in sys.path if entry]
    names = ("nvidia/*/compute-sanitizer/libsanitizer-public.so", "nvidia/*/lib/libsanitizer-public.so")
    return ":".join(str(path) for place in places for name in names for path in sorted(place.glob(name)))


@dataclass
class Measured:
    """A recording in the memory pass: its tables, and what to print when it is not as expected."""

    trace: Trace
    result: subprocess.CompletedProcess[str]

    def table(self, name: str) -> pl.DataFrame:
        return self.trace.table(name).collect()

    def objects(self) -> pl.DataFrame:
        """Return the accesses to objects with the object's size and address, in order of launch and allocation."""
        made = self.table("alloc").filter(pl.col("action") == "alloc").select("object_id", "address", "bytes", "kind")
        rows = self.table("access_object").join(made, on="object_id", how="left", nulls_equal=False)
        return rows.sort("launch_id", "object_id")

    def sites(self, kernel: str) -> pl.DataFrame:
        """Return the instructions of the kernels whose name begins so, a row a launch and instruction."""
        launches = self.table("kernel").filter(pl.col("name").str.contains(kernel, literal=True))
        return self.table("access_site").join(launches.select("launch_id", "name"), on="launch_id").sort("launch_id")

    def explain(self) -> str:
        """Return what the trace holds, for the message of a failed assertion."""
        with pl.Config(tbl_rows=60, tbl_cols=30, tbl_width_chars=250, fmt_str_lengths=120):
            tables = {
                "loss": self.table("loss").select("source", "table", "records", "cause"),
                "build": self.table("build")
                .group_by("log")
                .agg(pl.len(), took_ms=(pl.col("end_ns") - pl.col("start_ns")).sum() / 1e6),
                "kernel": self.table("kernel").group_by("name", "grid_x", "block_x").len(),
                "alloc": self.table("alloc").select("action", "object_id", "address", "bytes", "kind", "allocator"),
                "access_object": self.objects().head(60),
                "access_site": self.table("access_site").head(60),
            }
            text = "\n".join(f"-- {name}\n{frame}" for name, frame in tables.items())
        return f"status {self.result.returncode}\nstderr: {self.result.stderr[-3000:]}\n{text}"

    def check(self, condition: object) -> None:
        assert condition, self.explain()

    def rows(self, frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
        return frame.select(columns).rows()


class Recorder:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder, self.opened = program, folder, list[Trace]()

    def __call__(self, mode: str, memory: str = "objects,sites,blocks", status: int = 0, **variables: str) -> Measured:
        output = self.folder / f"{mode}-{len(self.opened)}.pasta"
        variables = {"PASTA_MEMORY": memory, "PASTA_SANITIZER_HINTS": sanitizer_libraries(), **variables}
        result = record([self.program, mode], output, **variables)
        assert result.returncode == status, f"status {result.returncode}\n{result.stdout}\n{result.stderr}"
        self.opened.append(Trace.open(output))
        return Measured(self.opened[-1], result)


@pytest.fixture
def measure(patterns: Path, tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(patterns, tmp_path)
    yield recorder
    for trace in recorder.opened:
        trace.close()


def pages(address: int, size: int, page: int) -> int:
    """Return how many pages of ``page`` bytes an object overlaps."""
    return (address + size - 1) // page - address // page + 1


def test_vector_add_is_exact(measure: Recorder) -> None:
    run = measure("vector_add")
    rows = run.objects()
    counts = run.rows(rows, "loads", "load_bytes", "stores", "store_bytes", "atomics")
    run.check(counts == [(N, VECTOR, 0, 0, 0), (N, VECTOR, 0, 0, 0), (0, 0, N, VECTOR, 0)])
    run.check(rows.select(pl.sum_horizontal("loads", "stores").sum()).item() == 3_145_728)
    for row in rows.iter_rows(named=True):
        run.check((row["first_offset"], row["last_offset"]) == (0, VECTOR - 1))
        for column, page in (("pages_4k", 4096), ("pages_64k", 65536), ("pages_2m", 2 * MIB)):
            run.check(row[column] == pages(row["address"], VECTOR, page))
    sites = run.rows(run.sites("vector_add"), "executions", "lanes", "bytes", "sectors", "ideal_sectors", "space")
    run.check(sites == [(WARPS, N, VECTOR, 4 * WARPS, 4 * WARPS, "global")] * 3)
    run.check(sorted(run.sites("vector_add")["kind"]) == ["load", "load", "store"])
    blocks = run.table("access_block")
    run.check(blocks["accesses"].sum() == 3 * N)
    run.check(set(blocks["accesses"]) == {MIB // 2})  # 2 MiB of floats, each once
    kernel = run.table("kernel")
    run.check(run.rows(kernel, "grid_x", "block_x", "start_ns") == [(N // 256, 256, None)])
    run.check(kernel["queued_ns"].null_count() == 0)


def test_objects_only_gives_the_same_objects(measure: Recorder) -> None:
    columns = ("loads", "stores", "load_bytes", "store_bytes", "pages_4k", "first_offset", "last_offset")
    full, short = measure("vector_add"), measure("vector_add", memory="objects")
    short.check(short.rows(short.objects(), *columns) == full.rows(full.objects(), *columns))
    short.check(short.table("access_site").is_empty() and short.table("access_block").is_empty())


@pytest.mark.parametrize("index", range(6))
def test_strided_loads_need_a_sector_each_from_eight_floats_on(measure: Recorder, index: int) -> None:
    run = measure("strides")
    stride, warps = 1 << index, 1024
    launch = run.table("kernel").sort("launch_id")["launch_id"][index]
    loads = run.sites("strided").filter((pl.col("launch_id") == launch) & (pl.col("kind") == "load"))
    expected = (warps, 32 * warps, warps * min(4 * stride, 32), warps * 4)
    run.check(run.rows(loads, "executions", "lanes", "sectors", "ideal_sectors") == [expected])


def test_transposes(measure: Recorder) -> None:
    run = measure("transposes", memory="sites,shared")
    naive = run.sites("transpose_naive").sort("kind")
    run.check(run.rows(naive, "kind", "sectors") == [("load", 4 * WARPS), ("store", 32 * WARPS)])
    for name, conflicts in (("transpose_tiled<1>", 0), ("transpose_tiled<0>", 31 * WARPS)):
        sites = run.sites(name)
        device = sites.filter(pl.col("space") == "global").sort("kind")
        run.check(run.rows(device, "kind", "sectors") == [("load", 4 * WARPS), ("store", 4 * WARPS)])
        shared = sites.filter(pl.col("space") == "shared").sort("kind")
        # The row is written without conflicts; the column is read, padded or not.
        run.check(run.rows(shared, "kind", "bank_conflicts") == [("load", conflicts), ("store", 0)])


def test_atomics_of_a_histogram(measure: Recorder) -> None:
    run = measure("histogram")
    rows = run.rows(run.objects(), "bytes", "loads", "stores", "atomics", "atomic_bytes")
    run.check(sorted(rows) == [(1024, 0, 0, N, VECTOR), (VECTOR, N, 0, 0, 0)])
    run.check("atomic" in set(run.sites("histogram")["kind"]))


def test_asynchronous_copies_are_loads(measure: Recorder) -> None:
    run = measure("async")
    rows = run.rows(run.objects(), "loads", "load_bytes", "stores", "store_bytes")
    run.check(sorted(rows) == [(0, 0, N // 4, VECTOR), (N // 4, VECTOR, 0, 0)])
    # 16 bytes a lane: 512 bytes a warp.
    run.check(set(run.rows(run.sites("async_copy"), "executions", "sectors")) == {(N // 128, 16 * N // 128)})


def test_bytes_filled_with_zeros_are_not_read(measure: Recorder) -> None:
    run = measure("padded")
    loads = run.objects().filter(pl.col("loads") > 0)
    threads = N // 4
    if loads["load_bytes"].to_list() == [16 * threads]:
        pytest.skip("the library does not tell zero-filled bytes: older than 13.5")
    run.check(run.rows(loads, "loads", "load_bytes") == [(threads, 12 * threads)])
    # Sectors of a warp: its 16 bytes lie in pairs in one each, and so do its 8 bytes. One execution for each size.
    sites = run.sites("padded_copy").filter(pl.col("kind") == "load")
    run.check(run.rows(sites, "executions", "lanes", "sectors") == [(threads // 16, threads, threads // 2)])


def test_bulk_copies_are_loads(measure: Recorder) -> None:
    run = measure("bulk")
    if run.table("access_object").is_empty():  # the kernel is empty before sm_90
        pytest.skip("no bulk copies on this GPU")
    loads = run.objects().filter(pl.col("loads") > 0)
    run.check(run.rows(loads, "loads", "load_bytes", "pages_4k") == [(256, MIB, 256)])


def test_divergent_warps(measure: Recorder) -> None:
    run = measure("divergent", memory="divergence")
    columns = ("executions", "lanes", "bytes", "sectors", "ideal_sectors", "min_lanes", "max_lanes")
    run.check(run.rows(run.sites("divergent"), *columns) == [(WARPS, 8 * WARPS, 32 * WARPS, WARPS, WARPS, 8, 8)] * 2)


def test_local_memory(measure: Recorder) -> None:
    run = measure("local", memory="all")
    local = run.sites("local").filter(pl.col("space") == "local").group_by("kind").agg(pl.col("lanes").sum())
    if local.is_empty():
        pytest.xfail("no local access is reported on the H200 (CUDA 13.0), the cause is not known")
    run.check(dict(local.rows()) == {"load": 256, "store": 16 * 256})


def per_object(run: Measured) -> list[tuple[object, ...]]:
    """Return the number of launches that touched each object, and what each of them counted."""
    grouped = run.objects().group_by("object_id").agg(
        pl.len(), pl.sum_horizontal("loads", "stores").sum().alias("accesses"), pl.col("pages_4k").n_unique()
    )  # fmt: skip
    return grouped.select("len", "accesses", "pages_4k").rows()


def test_two_streams(measure: Recorder) -> None:
    run = measure("streams")
    run.check(run.table("kernel").height == 200)
    run.check(per_object(run) == [(100, 100 * N, 1)] * 6)
    run.check(run.table("kernel")["stream_id"].n_unique() == 2)


def test_eight_threads(measure: Recorder) -> None:
    run = measure("threads", memory="objects")
    run.check(run.table("kernel").height == 400)
    run.check(per_object(run) == [(50, 50 * N, 1)] * 24)


def test_graph_nodes(measure: Recorder) -> None:
    run = measure("graph")
    kernel = run.table("kernel")
    run.check((kernel.height, kernel["graph_node_id"].n_unique(), kernel["graph_id"].n_unique()) == (400, 40, 1))
    # The nodes of a replay that run one kernel share a measurement: the driver hands one slot to all of them.
    run.check(per_object(run) == [(10, 400 * N, 1)] * 3)


def test_more_launches_than_slots(measure: Recorder) -> None:
    run = measure("many", memory="objects", PASTA_MEMORY_BUFFER="4M")
    run.check(run.table("kernel").height == 2000)
    run.check(per_object(run) == [(2000, 2000 * N, 1)] * 3)


def test_sampled_launches(measure: Recorder) -> None:
    run = measure("many", memory="objects", PASTA_SAMPLE="3:100")
    run.check(run.table("kernel").height == 2000)
    # The first 3, then every 100th of the other 1,997.
    run.check(run.table("access_object")["launch_id"].n_unique() == 3 + 19)


def test_stream_ordered_allocations(measure: Recorder) -> None:
    run = measure("pool", memory="objects")
    rows = run.objects()
    run.check(run.rows(rows, "loads", "stores") == [(2 * N, N)] * 20)
    run.check(rows["object_id"].n_unique() == 20)


def test_managed_memory(measure: Recorder) -> None:
    run = measure("managed", memory="objects")
    run.check(run.rows(run.objects(), "kind", "bytes", "loads", "stores") == [("managed", VECTOR, 2 * N, N)])


def test_fault_keeps_the_launches_before_it(measure: Recorder) -> None:
    run = measure("faults", memory="objects", status=3)
    run.check(run.result.stdout.startswith("cudaErrorIllegalAddress"))
    run.check(run.table("kernel").height == 26)
    run.check(per_object(run) == [(25, 25 * N, 1)] * 3)


def test_the_floor_measures_nothing(measure: Recorder) -> None:
    run = measure("vector_add", memory="floor")
    run.check(run.table("kernel").height == 1 and run.table("access_object").is_empty())


def test_covered_instructions_are_said(measure: Recorder) -> None:
    run = measure("vector_add")
    log = set(run.table("build")["log"])
    run.check(any(text.startswith("instrumented: global memcpy_async bulk_load") for text in log))


def test_no_library_leaves_the_program_alone(measure: Recorder) -> None:
    run = measure("vector_add", PASTA_SANITIZER_PATH="/nonexistent/libsanitizer-public.so")
    run.check("CUDA memory accesses are not recorded" in run.result.stderr)
    run.check(run.table("loss").filter(pl.col("source") == "sanitizer").height == 1)


@pytest.mark.parametrize("map_is", ["encoded", "made"])  # made: never seen, only its bytes tell what it describes
def test_tma_loads(tmp_path: Path, map_is: str) -> None:
    program = compile_cuda("memory_tma.cu", tmp_path)
    if subprocess.run([program]).returncode == 77:
        pytest.skip("no TMA on this GPU")
    recorder = Recorder(program, tmp_path)
    run = recorder(map_is)
    if run.table("loss").filter(pl.col("cause").str.contains("tma_load instructions|older than 13.3")).height:
        pytest.skip(f"the library has no TMA: {run.table('loss')['cause'].to_list()}")
    matrix = run.objects().filter(pl.col("loads") > 0)
    expected = (64, 256 * 512 * 4, 0, 256 * 512 * 4 - 1, 128)
    columns = ("loads", "load_bytes", "first_offset", "last_offset", "pages_4k")
    run.check(run.rows(matrix, *columns) == [expected])
    recorder.opened[0].close()
