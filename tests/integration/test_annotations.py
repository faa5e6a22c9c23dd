"""``pasta.range``, ``mark``, ``start`` and ``stop`` in real programs, recorded and not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from torch_runs import python, record, recorded, run


def _ranges(output: Path, program: str, **options: object) -> pl.DataFrame:
    trace = recorded(output, *python(program), **options)
    return trace.table("range").collect().sort("start_ns")


def test_nested_blocks_and_marks(tmp_path: Path) -> None:
    ranges = _ranges(
        tmp_path / "trace",
        """
import pasta
with pasta.range("epoch"):
    for step in range(2):
        with pasta.range("step"):
            pasta.mark("half")
""",
    )
    assert ranges.select("name", "kind", "source").rows() == [
        ("epoch", "push_pop", "pasta"),
        ("step", "push_pop", "pasta"),
        ("half", "mark", "pasta"),
        ("step", "push_pop", "pasta"),
        ("half", "mark", "pasta"),
    ]
    epoch, first, mark, second, _ = ranges["range_id"]
    assert ranges["parent_id"].to_list() == [None, epoch, first, epoch, second]
    assert ranges.filter(range_id=mark).select(pl.col("start_ns") == pl.col("end_ns")).item()


def test_exception_ends_the_range(tmp_path: Path) -> None:
    ranges = _ranges(
        tmp_path / "trace",
        """
import pasta
for _ in range(2):
    try:
        with pasta.range("fails"):
            raise ValueError
    except ValueError:
        pass
""",
    )
    assert ranges["name"].to_list() == ["fails", "fails"]
    assert ranges["parent_id"].to_list() == [None, None]


def test_decorated_functions(tmp_path: Path) -> None:
    ranges = _ranges(
        tmp_path / "trace",
        """
import asyncio, pasta
@pasta.range("plain")
def plain(a, b=1):
    "doc"
    return a + b
@pasta.range("coroutine")
async def coroutine(a):
    await asyncio.sleep(0)
    return a
@pasta.range("generator")
def generator():
    received = yield 1
    return received
assert plain(1, b=2) == 3 and plain.__doc__ == "doc"
assert asyncio.run(coroutine(4)) == 4
steps = generator()
assert next(steps) == 1
try:
    steps.send(5)
except StopIteration as end:
    assert end.value == 5
try:
    @pasta.range("no")
    async def wrong():
        yield 1
except TypeError:
    pass
else:
    raise SystemExit("an asynchronous generator was decorated")
""",
    )
    assert ranges.select("name", "kind").rows() == [
        ("plain", "push_pop"),
        ("coroutine", "start_end"),
        ("generator", "start_end"),
    ]


def test_tasks_of_one_thread_may_overlap(tmp_path: Path) -> None:
    # first: enter A, enter B, leave A, leave B. The order is forced by events, not by time.
    ranges = _ranges(
        tmp_path / "trace",
        """
import asyncio, pasta
async def main():
    a_entered, b_entered, a_left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async def a():
        async with pasta.range("A"):
            a_entered.set()
            await b_entered.wait()
        a_left.set()
    async def b():
        await a_entered.wait()
        async with pasta.range("B"):
            b_entered.set()
            await a_left.wait()
    await asyncio.gather(a(), b())
asyncio.run(main())
""",
    )
    a, b = ranges.rows(named=True)
    assert (a["name"], b["name"]) == ("A", "B")
    assert a["start_ns"] <= b["start_ns"] <= a["end_ns"] <= b["end_ns"]


def test_threads_nest_on_their_own(tmp_path: Path) -> None:
    ranges = _ranges(
        tmp_path / "trace",
        """
import threading, pasta
barrier = threading.Barrier(2)
def work(name):
    with pasta.range(name):
        barrier.wait()
        with pasta.range("inner " + name):
            barrier.wait()
threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    )
    by_name = {row["name"]: row for row in ranges.iter_rows(named=True)}
    for name in "ab":
        inner, outer = by_name[f"inner {name}"], by_name[name]
        assert inner["parent_id"] == outer["range_id"]
        assert inner["thread_id"] == outer["thread_id"]


def test_start_and_stop(tmp_path: Path) -> None:
    ranges = _ranges(
        tmp_path / "trace",
        """
import pasta
pasta.mark("before")
pasta.stop()
pasta.mark("stopped")
pasta.start()
pasta.mark("after")
""",
    )
    assert ranges["name"].to_list() == ["before", "after"]


def test_capture_range(tmp_path: Path) -> None:
    ranges = _ranges(
        tmp_path / "trace",
        """
import pasta
pasta.mark("outside")
with pasta.range("step"):
    pasta.mark("inside")
""",
        capture_range="range",
        range_name="step",
    )
    assert ranges["name"].to_list() == ["step", "inside"]


def test_any_name_is_taken(tmp_path: Path) -> None:
    # A name ends at a NUL as every C string does; what is not UTF-8 is replaced.
    ranges = _ranges(
        tmp_path / "trace",
        r"""
import pasta
for name in ("", "größe", "a\0b", "\ud800", "x" * (1 << 21)):
    pasta.mark(name)
""",
    )
    names = ranges["name"].to_list()
    assert names[:4] == ["", "größe", "a", "?"]
    assert len(names[4]) == 1 << 20


@pytest.mark.parametrize("option", [[], ["-I"]])
def test_annotations_do_nothing_in_a_program_that_is_not_recorded(option: list[str], tmp_path: Path) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import pasta
with pasta.range("a"):
    pasta.mark("b"); pasta.start(); pasta.stop()
@pasta.range("c")
def f():
    return 7
assert f() == 7
assert "ctypes" not in sys.modules and "numpy" not in sys.modules and "polars" not in sys.modules
print("done")
"""
    interpreter, *rest = python(program)
    root = str(Path(__file__).parents[2])
    result = run(interpreter, *option, *rest, root)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", "")


def test_recorded_program_prints_what_it_prints(tmp_path: Path) -> None:
    program = "import pasta\nwith pasta.range('a'): print('out')"
    result = record(tmp_path / "trace", *python(program))
    assert (result.status, result.stdout, result.stderr) == (0, "out\n", "")
