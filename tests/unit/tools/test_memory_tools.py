"""The tools about memory, on objects and accesses whose sums are known."""

from __future__ import annotations

from golden import US, result_of, shown, table
from hypothesis import given
from hypothesis import strategies as st

from pasta.tools.analysis.lifetimes import level, object_lifetimes
from pasta.tools.testing import MemoryTrace, trace_of

MIB = 1 << 20


def objects() -> MemoryTrace:
    """Device memory: A 4 MiB 0..30, B 2 MiB 10..20, C 1 MiB from 20 on, never freed. Pinned: 1 MiB 0..40 us."""
    events = [
        (0, "alloc", 1, 4, "device"), (0, "alloc", 4, 1, "pinned"), (10, "alloc", 2, 2, "device"),
        (20, "free", 2, 2, "device"), (20, "alloc", 3, 1, "device"), (30, "free", 1, 4, "device"),
        (40, "free", 4, 1, "pinned"),
    ]  # fmt: skip
    return trace_of(
        alloc=[
            {"start_ns": us * US, "action": action, "object_id": id, "bytes": mib * MIB, "kind": kind,
             "device_id": 0 if kind == "device" else None, "allocator": f"make{id}"}
            for us, action, id, mib, kind in events
        ]
    )  # fmt: skip


def test_memory_peaks_when_a_and_b_live() -> None:
    # Device 0: A and B live from 10 to 20: 6 MiB; at 20 B's end comes before C's beginning.
    fields = ("device", "kind", "peak_bytes", "peak_at_ns", "held_bytes", "objects", "kept", "kept_bytes")
    assert shown(result_of("memory", objects()), *fields).startswith(
        table("""
        Memory objects
          device  kind    peak MiB  peak at µs  at device's peak MiB  objects  never freed  never freed MiB
          0       all         6.00       10.00                  6.00        3            1             1.00
          0       device      6.00       10.00                  6.00        3            1             1.00
          host    all         1.00        0.00                  1.00        1            0             0.00
          host    pinned      1.00        0.00                  1.00        1            0             0.00
    """)
    )


def test_biggest_objects() -> None:
    frame = result_of("memory", objects(), biggest=2).table("objects").frame
    assert frame.select("object_id", "life_ns").rows() == [(1, 30 * US), (2, 10 * US)]


def test_tensors_by_allocator_and_operator() -> None:
    tensor = {"device_type": "cuda", "device_index": 0}
    rows = [
        {"action": "alloc", "address": 16, "bytes": 3 * MIB, "allocated_bytes": 3 * MIB, "op_id": 1},
        {"action": "alloc", "address": 32, "bytes": 1 * MIB, "allocated_bytes": 4 * MIB, "op_id": 2},
        {"action": "free", "address": 16, "bytes": 3 * MIB, "allocated_bytes": 1 * MIB},
        {"action": "alloc", "address": 16, "bytes": 2 * MIB, "allocated_bytes": 3 * MIB, "op_id": 2},
    ]
    ops = [{"op_id": 1, "name": "aten::mm", "start_ns": 0}, {"op_id": 2, "name": "aten::add", "start_ns": 0}]
    trace = trace_of(
        tensor=[{**tensor, **row, "start_ns": i, "reserved_bytes": 8 * MIB} for i, row in enumerate(rows)], op=ops
    )
    # 3 + 1 MiB live at 1 ns; the address 16 is used again, by another tensor.
    fields = ("device_type", "device_index", "allocated_bytes", "peak_at_ns", "reserved_bytes", "seen_bytes", "tensors",
              "kept", "op", "held_bytes", "bytes")  # fmt: skip
    assert shown(result_of("memory", trace), *fields) == table("""
        Tensors
          allocator  device  peak in use MiB  peak at ns  peak reserved MiB  peak of tensors MiB  tensors  never freed
          cuda            0             4.00           1               8.00                 4.00        3            2

        Tensors by the operator that made them
          tensors  op         at peak MiB  allocated MiB
                1  aten::mm          3.00           3.00
                2  aten::add         1.00           3.00
    """)


lives = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=12)


@given(lives)
def test_the_peak_is_the_largest_sum_at_any_time(objects: list[tuple[int, int, int]]) -> None:
    rows = [
        {"action": action, "object_id": id, "start_ns": time, "bytes": size}
        for id, (born, length, size) in enumerate(objects)
        for action, time in (("alloc", born), ("free", born + length))
    ]
    found = level(object_lifetimes(trace_of(alloc=rows).table("alloc")).collect()).peak
    sums = [sum(size for born, length, size in objects if born <= t < born + length) for t in range(41)]
    assert found == (max(sums), sums.index(max(sums)))


def accesses() -> MemoryTrace:
    """Three launches. A (4 MiB): 16 pages by two launches. B (2 MiB): one line. C (1 MiB): untouched."""
    kernels = [
        {"name": name, "launch_id": id, "start_ns": (11 + id) * US, "end_ns": (12 + id) * US, "device_id": 0}
        for id, name in enumerate(("copy", "copy", "scan"))
    ]
    touched = [
        {"launch_id": 0, "object_id": 1, "loads": 100, "load_bytes": 400 << 10, "pages_4k": 16, "first_offset": 0,
         "last_offset": (64 << 10) - 1},
        {"launch_id": 1, "object_id": 1, "loads": 100, "load_bytes": 400 << 10, "pages_4k": 16, "first_offset": 0,
         "last_offset": (64 << 10) - 1},
        {"launch_id": 1, "object_id": 2, "stores": 1, "store_bytes": 4, "pages_4k": 1, "first_offset": 8,
         "last_offset": 11},
        {"launch_id": 2, "object_id": 1, "loads": 1, "load_bytes": 4, "pages_4k": 1, "first_offset": 0,
         "last_offset": 3},
    ]  # fmt: skip
    return MemoryTrace({**objects().frames, **trace_of(kernel=kernels, access_object=touched).frames})


def test_working_set_against_footprint() -> None:
    # Pages of 4 KiB: launch 0 touches 16 = 64 KiB, launch 1 17 = 68 KiB, launch 2 one. Whole objects: 4, 6, 4 MiB.
    # Footprint 6 MiB; all three launches run while A and B live.
    text = shown(result_of("workingset", accesses()), "unit", "footprint_bytes", "max_bytes", "median_bytes", "ratio")
    assert text.startswith(
        table("""
        Working set
          counted in     footprint MiB  working set MiB  median MiB  footprint / working set
          4 KiB pages             6.00             0.07        0.06                   90.353
          whole objects           6.00             6.00        4.00                    1.000
          3 launches measured
    """)
    )
    frame = result_of("workingset", accesses()).table("workingset").frame
    assert frame.select("max_bytes", "min_bytes", "median_bytes", "mean_footprint_bytes").rows() == [
        (68 << 10, 4 << 10, 64 << 10, 6 * MIB),
        (6 * MIB, 4 * MIB, 4 * MIB, 6 * MIB),
    ]


def test_working_set_by_kernel_and_object() -> None:
    result = result_of("workingset", accesses())
    # copy: launches of 64 and 68 KiB that access 400 KiB and 400 KiB + 4 bytes.
    copy = result.table("kernels").frame.row(0, named=True)
    assert (copy["kernel"], copy["max_bytes"], copy["mean_bytes"]) == ("copy", 68 << 10, 66 << 10)
    assert copy["reuse"] == ((800 << 10) + 4) / (132 << 10)
    assert result.table("objects").frame.select("object_id", "launches", "touched_bytes", "load_bytes").rows() == [
        (1, 3, 64 << 10, (800 << 10) + 4),
        (2, 1, 4 << 10, 0),
    ]


def test_without_accesses_only_the_footprint_is_known() -> None:
    assert shown(result_of("workingset", objects())) == table("""
        Footprint
          footprint MiB  reached at µs
                   6.00          10.00

        Findings
          · info   workingset needs access_object, which this trace does not have
                   record with --memory
    """)


def test_underused_memory_is_bounded_from_above() -> None:
    # A is touched in its first 64 KiB of 4 MiB, however often; B in 4 bytes; C by nothing.
    frame = result_of("underused", accesses()).table("underused").frame
    assert frame.select("object_id", "unused_bytes", "launches").rows() == [
        (1, 4 * MIB - (64 << 10), 3), (2, 2 * MIB - 4, 1), (3, 1 * MIB, 0)
    ]  # fmt: skip
    found = {finding.id: finding.evidence["unused_bytes"] for finding in result_of("underused", accesses()).findings}
    assert found == {"untouched-memory": MIB, "hardly-touched-memory": 6 * MIB - (64 << 10) - 4}


def test_early_and_late_memory() -> None:
    # A lives 0..30 and is used 11..14: 11 us before, 16 us after.
    row = result_of("underused", accesses()).table("underused").frame.row(0, named=True)
    assert (row["early_ns"], row["late_ns"]) == (11 * US, 16 * US)


def test_hotness_tells_steady_from_bursts() -> None:
    # A is used by all three launches, B by the middle one: with 3 windows of time, 100 % and 33 %.
    frame = result_of("hotness", accesses(), windows=3).table("objects").frame
    assert frame.select("object_id", "accesses", "active", "use", "over_time").rows() == [
        (1, 201, 100.0, "steady", [100, 100, 1]), (2, 1, 100 / 3, "burst", [0, 1, 0])
    ]  # fmt: skip


def test_hot_blocks() -> None:
    blocks = [
        {"object_id": 1, "offset": offset, "start_ns": t, "end_ns": t + 1, "accesses": n, "bytes": 64}
        for offset, t, n in ((0, 0, 5), (0, 9, 5), (64, 9, 2))
    ]
    frame = result_of("hotness", trace_of(access_block=blocks), windows=2).table("blocks").frame
    assert frame.select("offset", "accesses", "use", "over_time").rows() == [
        (0, 10, "steady", [5, 5]), (64, 2, "steady", [0, 2])
    ]  # fmt: skip


def sites() -> MemoryTrace:
    """A warp of 32 lanes reads 4 bytes each: neighbours need 4 sectors of 32 bytes, a stride of a sector needs 32."""
    rows = [
        {"launch_id": 0, "site_id": 1, "kind": "load", "space": "global", "executions": 10, "lanes": 320, "bytes": 1280,
         "sectors": 320, "ideal_sectors": 40},
        {"launch_id": 0, "site_id": 2, "kind": "store", "space": "global", "executions": 10, "lanes": 80, "bytes": 320,
         "sectors": 10, "ideal_sectors": 10, "min_lanes": 4, "max_lanes": 12},
        {"launch_id": 0, "site_id": 3, "kind": "load", "space": "shared", "executions": 10, "lanes": 320, "bytes": 1280,
         "bank_conflicts": 70},
    ]  # fmt: skip
    lines = [{"site_id": i, "kernel": "transpose", "file": "kernels.cu", "line": 40 + i} for i in (1, 2, 3)]
    return trace_of(
        access_site=rows,
        line=lines,
        kernel=[{"name": "transpose", "launch_id": 0, "device_id": 0, "start_ns": 0, "end_ns": 1}],
        device=[{"device_id": 0, "warp_size": 32}],
    )


def test_coalescing_by_source_line() -> None:
    # Line 41 moves 320 sectors for 40: 280 too many, all the excess there is; 32 a request, 4 needed; 12.5 % of use.
    fields = ("file", "line", "kind", "sectors", "ideal_sectors", "excess", "share", "efficiency", "sectors_each",
              "ideal_each", "bank_conflicts", "conflicts_each")  # fmt: skip
    assert shown(result_of("coalescing", sites()), *fields) == table("""
        Device memory accesses by source line
          file        line  kind   sectors  needed  excess  of excess %                    efficiency %  sectors a request  needed
          kernels.cu    41  load       320      40     280        100.0  ████████████████          12.5             32.000   4.000
          kernels.cu    42  store       10      10       0          0.0                           100.0              1.000   1.000
          1 launch measured

        Bank conflicts of shared memory
          file        line  kind  extra passes  a request
          kernels.cu    43  load            70      7.000

        Findings
          ● medium kernels.cu:41: 88 % of what the loads of transpose move is waste: 32.0 sectors a request, 4.0 needed
                   let neighbouring threads access neighbouring addresses, or stage the data in shared memory
    """)  # noqa: E501


def test_divergence_by_source_line() -> None:
    # Line 42 runs with 8 of 32 lanes: 240 of 320 idle.
    fields = ("line", "executions", "active", "idle")
    assert shown(result_of("divergence", sites()), *fields).startswith(
        table("""
        Active lanes by source line
          line  executions of a warp  active lanes %                    idle lanes
            42                    10            25.0  ████                     240
            41                    10           100.0  ████████████████           0
            43                    10           100.0  ████████████████           0
    """)
    )
    frame = result_of("divergence", sites()).table("divergence").frame
    assert frame.select("min_lanes", "max_lanes").rows() == [(4, 12), (None, None), (None, None)]
    (finding,) = result_of("divergence", sites()).findings
    assert finding.text.startswith("kernels.cu:42: on average 25 % of the lanes take part in the stores of transpose")


def tensors() -> MemoryTrace:
    """A segment of 4 MiB; in it W (2 MiB, 1 MiB of it read by two launches), V (512 B) and Z, which nothing touches."""
    made = [(1, 2 * MIB, 0, 2), (2, 512, 2 * MIB, 3), (3, MIB, 3 * MIB, 3)]
    tensor = {"action": "alloc", "device_type": "cuda", "device_index": 0}
    touched = [
        {"launch_id": 0, "object_id": 1, "tensor_id": 1, "loads": 1 << 18, "load_bytes": MIB, "pages_4k": 256,
         "first_offset": 0, "last_offset": MIB - 1},
        {"launch_id": 0, "object_id": 1, "tensor_id": 2, "stores": 128, "store_bytes": 512, "pages_4k": 1,
         "first_offset": 2 * MIB, "last_offset": 2 * MIB + 511},
        {"launch_id": 0, "object_id": 1, "tensor_id": None, "loads": 8, "load_bytes": 32, "pages_4k": 1,
         "first_offset": 4 * MIB - 32, "last_offset": 4 * MIB - 1},
        {"launch_id": 1, "object_id": 1, "tensor_id": 1, "loads": 4, "load_bytes": 16, "pages_4k": 1,
         "first_offset": 0, "last_offset": 15},
    ]  # fmt: skip
    return trace_of(
        alloc=[{"start_ns": 0, "action": "alloc", "object_id": 1, "bytes": 4 * MIB, "kind": "device"}],
        tensor=[
            {**tensor, "tensor_id": id, "bytes": size, "address": (1 << 30) + at, "start_ns": id * US, "op_id": op}
            for id, size, at, op in made
        ],
        op=[
            {"op_id": 1, "name": "step", "start_ns": 0, "end_ns": 9},
            {"op_id": 2, "parent_id": 1, "name": "aten::randn", "start_ns": 1, "end_ns": 2},
            {"op_id": 3, "parent_id": 1, "name": "aten::add", "start_ns": 3, "end_ns": 4},
        ],
        kernel=[{"name": "add", "launch_id": i, "queued_ns": (10 + i) * US} for i in range(2)],
        access_object=touched,
    )  # fmt: skip


def test_accesses_to_tensors_add_up_to_those_of_their_object() -> None:
    result = result_of("workingset", tensors())
    # Of the page of V only its 512 bytes can be touched.
    assert result.table("workingset").frame.select("unit", "max_bytes", "min_bytes").row(0) == (
        "4 KiB pages", MIB + 512 + 4096, 4096,
    )  # fmt: skip
    assert result.table("objects").frame.select("object_id", "launches", "load_bytes").rows() == [(1, 2, MIB + 48)]
    fields = ("tensor_id", "op", "launches", "touched_bytes", "touched", "store_bytes")
    assert result.table("tensors").frame.select(fields).rows() == [
        (1, "aten::randn", 2, MIB, 50.0, 0), (2, "aten::add", 1, 512, 100.0, 512)
    ]  # fmt: skip


def test_underused_tensors_name_who_made_them() -> None:
    result = result_of("underused", tensors(), below=60)
    rows = result.table("tensors").frame.select("tensor_id", "unused_bytes", "launches", "op", "called").rows()
    # W is touched in its first 1 MiB by both launches: the extent bounds the union.
    assert rows == [
        (1, MIB, 2, "aten::randn", "step > aten::randn"), (3, MIB, 0, "aten::add", "step > aten::add")
    ]  # fmt: skip
    (found,) = (finding for finding in result.findings if finding.id == "hardly-touched-tensors")
    assert found.evidence == {"unused_bytes": MIB, "tensors": 1, "op": "aten::add"}
    assert "1.00 MiB of it made by aten::add" in found.text


def test_tensors_over_time() -> None:
    """Launches of a memory pass have only the time at which they were queued."""
    frame = result_of("hotness", tensors(), windows=2).table("tensors").frame
    assert frame.select("tensor_id", "size", "accesses", "over_time", "allocator").rows() == [
        (1, 2 * MIB, (1 << 18) + 4, [1 << 18, 4], "aten::randn"), (2, 512, 128, [128, 0], "aten::add")
    ]  # fmt: skip


def test_without_lines_instructions_stand_for_themselves() -> None:
    trace = sites()
    code = [(0x90, "LDG.E R2, desc[UR4][R2.64]"), (0xB0, "STG.E desc[UR4][R4.64], R3"), (0x100, "LDS R7, [R4]")]
    lines = [{"site_id": i, "kernel": "transpose", "pc": pc, "text": text} for i, (pc, text) in enumerate(code, 1)]
    result = result_of("coalescing", MemoryTrace({**trace.frames, **trace_of(line=lines).frames}))
    assert result.table("sites").frame.select("file", "pc", "text", "excess").rows() == [
        (None, 0x90, "LDG.E R2, desc[UR4][R2.64]", 280), (None, 0xB0, "STG.E desc[UR4][R4.64], R3", 0)
    ]  # fmt: skip
    assert result.findings[0].text.startswith("transpose+0x90: 88 % of what the loads of transpose move is waste")
