"""The writer side of a recording, driven through pasta._native in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

from pasta.schema import TABLES
from pasta.trace.shards import Shard

pytest.importorskip("pasta._native")


def run(code: str, output: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with the session at hand, recording into ``output``."""
    prelude = "import os, signal, threading\nfrom pasta._native import session\n"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PASTA_")}
    environment |= {"PASTA_OUTPUT": str(output), "PASTA_RECORDING": "test", **variables}
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code)],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def rows(output: Path, table: str) -> pl.DataFrame:
    """All rows of ``table`` in all shards of ``output``."""
    frames = []
    for path in sorted(output.glob("*.pastashard")):
        shard = Shard(path)
        chunks = shard.chunks_of(TABLES[table])
        if chunks:
            frames.append(shard.frame(chunks))
    return pl.concat(frames) if frames else pl.DataFrame()


def test_every_table_and_null_survives(tmp_path: Path) -> None:
    result = run(
        """
        session.emit("kernel", {"start_ns": 5, "name": "vadd", "grid_x": 7, "compiled": True, "launch_id": -(2**62)})
        session.emit("kernel", {"name": "vadd"})
        session.emit("memcpy", {"kind": 1, "bytes": 0, "asynchronous": False})
        session.emit("op", {"name": "", "phase": 2})
        session.finish("exit", 0)
        """,
        tmp_path / "t",
    )
    assert result.returncode == 0, result.stderr
    kernel = rows(tmp_path / "t", "kernel")
    assert kernel["name"].to_list() == ["vadd", "vadd"]
    assert kernel["start_ns"].to_list() == [5, None]
    assert kernel["launch_id"].to_list() == [-(2**62), None]
    assert kernel["compiled"].to_list() == [True, None]
    copy = rows(tmp_path / "t", "memcpy").row(0, named=True)
    assert (copy["kind"], copy["bytes"], copy["asynchronous"], copy["src_kind"]) == ("h2d", 0, False, None)
    # The empty string is a string, not a null.
    assert rows(tmp_path / "t", "op").row(0, named=True) | {"name": "", "phase": "backward"} == rows(
        tmp_path / "t", "op"
    ).row(0, named=True)


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """8 threads x 20,000 records: every pair (thread, number) arrives once."""
    run(
        """
        def work(thread):
            for i in range(20_000):
                session.emit("kernel", {"stream_id": thread, "launch_id": i, "name": f"k{i % 50}"})
        threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        session.finish("exit", 0)
        """,
        tmp_path / "t",
    )
    kernel = rows(tmp_path / "t", "kernel")
    assert kernel.height == 160_000
    assert kernel.select("stream_id", "launch_id").n_unique() == 160_000
    assert (kernel["name"] == pl.Series([f"k{i % 50}" for i in kernel["launch_id"]])).all()
    assert rows(tmp_path / "t", "thread")["thread_id"].n_unique() == 9  # and the main thread


def test_full_buffer_is_a_counted_loss(tmp_path: Path) -> None:
    """What does not fit is dropped, counted, and the rest is kept: kept + lost = emitted."""
    run(
        """
        for i in range(300_000):
            session.emit("kernel", {"launch_id": i})
        session.finish("exit", 0)
        """,
        tmp_path / "t",
        PASTA_BUFFER_SIZE="128K",
    )
    kept = rows(tmp_path / "t", "kernel").height
    loss = rows(tmp_path / "t", "loss")
    lost = 0 if loss.is_empty() else loss.filter(pl.col("table") == "kernel")["records"].sum()
    assert kept + lost == 300_000


def test_killed_process_leaves_what_was_flushed(tmp_path: Path) -> None:
    result = run(
        """
        session.emit("kernel", {"name": "before"})
        session.flush()
        session.emit("kernel", {"name": "after"})
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path / "t",
    )
    assert result.returncode == -signal.SIGKILL
    assert "before" in rows(tmp_path / "t", "kernel")["name"].to_list()
    assert rows(tmp_path / "t", "process")["how_ended"].to_list() == [None]


def test_fork_writes_a_shard_of_its_own(tmp_path: Path) -> None:
    run(
        """
        session.emit("kernel", {"name": "parent"})
        if (pid := os.fork()) == 0:
            session.emit("kernel", {"name": "child"})
            session.finish("_exit", 3)
            os._exit(3)
        os.waitpid(pid, 0)
        session.emit("kernel", {"name": "parent"})
        session.finish("exit", 0)
        """,
        tmp_path / "t",
    )
    assert len(list((tmp_path / "t").glob("*.pastashard"))) == 2
    assert sorted(rows(tmp_path / "t", "kernel")["name"]) == ["child", "parent", "parent"]
    ended = rows(tmp_path / "t", "process").filter(pl.col("how_ended").is_not_null())
    assert sorted(zip(ended["how_ended"], ended["exit_status"], strict=True)) == [("_exit", 3), ("exit", 0)]


def test_exec_in_the_same_pid_keeps_ids_apart(tmp_path: Path) -> None:
    """A second image of one pid gets a second shard, and ids above those of the first."""
    script = tmp_path / "image.py"
    script.write_text(
        """
import os, sys
from pasta._native import session
session.ensure()
session.emit("kernel", {"launch_id": session.next_id()})
session.finish("exec", 0)
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "second"])
"""
    )
    run(f"import sys; os.execv(sys.executable, [sys.executable, {str(script)!r}])", tmp_path / "t")
    first, second = rows(tmp_path / "t", "kernel")["launch_id"].to_list()
    assert second - first >= 1 << 40


def test_daemon_that_closes_descriptors_is_followed(tmp_path: Path) -> None:
    """Closing every descriptor and reusing the numbers neither stops the shard nor harms the program's files."""
    run(
        f"""
        session.emit("kernel", {{"name": "before"}})
        session.flush()
        os.closerange(3, 4096)
        theirs = [os.open({str(tmp_path / "theirs")!r}, os.O_CREAT | os.O_RDWR) for _ in range(600)]
        session.emit("kernel", {{"name": "after"}})
        session.finish("exit", 0)
        """,
        tmp_path / "t",
    )
    assert rows(tmp_path / "t", "kernel")["name"].to_list() == ["before", "after"]
    assert (tmp_path / "theirs").read_bytes() == b""


def test_nothing_is_created_before_the_first_event(tmp_path: Path) -> None:
    assert run("session.collecting()", tmp_path / "t").returncode == 0
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(("ranks", "recorded"), [("0,3-5", True), ("0-2", False), ("", True)])
def test_ranks_select_processes(tmp_path: Path, ranks: str, recorded: bool) -> None:
    run("session.emit('kernel', {}); session.finish('exit', 0)", tmp_path / "t", PASTA_RANKS=ranks, RANK="4")
    assert (tmp_path / "t").exists() == recorded


def test_output_of_another_recording_is_refused(tmp_path: Path) -> None:
    code = "print(session.ensure()); session.finish('exit', 0)"
    assert run(code, tmp_path / "t").stdout == "True\n"
    again = run(code, tmp_path / "t", PASTA_RECORDING="another")
    assert again.stdout == "False\n"
    assert "already exists; pass --force-overwrite" in again.stderr


def test_unwritable_output_disables_and_says_so(tmp_path: Path) -> None:
    result = run("print(session.ensure()); session.finish('exit', 0)", tmp_path / "missing" / "t")
    assert result.stdout == "False\n"
    assert "cannot create" in result.stderr
    assert result.returncode == 0


def test_names_without_end_cost_no_memory(tmp_path: Path) -> None:
    """More distinct text than the table keeps (64 MiB): names are dropped and counted, the rows stay."""
    run(
        """
        for i in range(100):
            session.emit("kernel", {"name": f"{i:04}" + "x" * 999_996})
        session.finish("exit", 0)
        """,
        tmp_path / "t",
    )
    kernel = rows(tmp_path / "t", "kernel")
    assert kernel.height == 100
    assert kernel["name"].null_count() == 100 - (64 << 20) // 1_000_000
    assert "too much distinct text" in rows(tmp_path / "t", "loss")["cause"][0]


def test_max_size_stops_collection(tmp_path: Path) -> None:
    result = run(
        """
        session.ensure()
        while session.collecting():
            session.emit("kernel", {"launch_id": 1})
            session.flush()
        print(session.collecting())
        session.finish("exit", 0)
        """,
        tmp_path / "t",
        PASTA_MAX_SIZE="20K",
    )
    assert result.stdout == "False\n"
    assert "--max-size" in rows(tmp_path / "t", "loss")["cause"][0]


class TestGate:
    """Which launches and ranges are collected: each launch k0, k1, ... asks once."""

    SELECT = "session.ensure(); print(*[int(session.select_launch(f'k{i % 2}')) for i in range(8)], sep='')"

    @pytest.mark.parametrize(
        ("variables", "selected"),
        [
            ({}, "11111111"),
            ({"PASTA_KERNELS": "^k1$"}, "01010101"),
            ({"PASTA_LAUNCH_SKIP": "2", "PASTA_LAUNCH_COUNT": "3"}, "00111000"),
            ({"PASTA_KERNELS": "1", "PASTA_LAUNCH_SKIP": "1", "PASTA_LAUNCH_COUNT": "2"}, "00010100"),
            ({"PASTA_START_LAUNCH": "2", "PASTA_END_LAUNCH": "5"}, "00111000"),
            ({"PASTA_KERNELS": "("}, "00000000"),
            ({"PASTA_DELAY": "1000", "PASTA_ANCHOR_NS": "9000000000000000000"}, "00000000"),
        ],
    )
    def test_launches(self, tmp_path: Path, variables: dict[str, str], selected: str) -> None:
        assert run(self.SELECT, tmp_path / "t", **variables).stdout.strip() == selected

    RANGES = """
    session.ensure()
    seen = []
    for name, domain in [("warm", ""), ("step", "a"), ("step", ""), ("step", "")]:
        session.range_push(name, domain); session.range_push("inner")
        seen.append(int(session.collecting()))
        session.range_pop(); session.range_pop(domain)
        seen.append(int(session.collecting()))
    print(*seen, sep="")
    session.finish("exit", 0)
    """

    @pytest.mark.parametrize(
        ("variables", "seen"),
        [
            ({}, "11111111"),
            ({"PASTA_CAPTURE_RANGE": "range", "PASTA_RANGE": "step"}, "00100000"),
            ({"PASTA_CAPTURE_RANGE": "range", "PASTA_RANGE": "step@a"}, "00100000"),
            ({"PASTA_CAPTURE_RANGE": "range", "PASTA_RANGE": "step", "PASTA_CAPTURE_RANGE_END": "repeat:2"},
             "00101000"),
            ({"PASTA_CAPTURE_RANGE": "range", "PASTA_RANGE": "step", "PASTA_CAPTURE_RANGE_END": "none"}, "00101010"),
            ({"PASTA_CAPTURE_RANGE": "cudaProfilerApi"}, "00000000"),
        ],
    )  # fmt: skip
    def test_ranges(self, tmp_path: Path, variables: dict[str, str], seen: str) -> None:
        assert run(self.RANGES, tmp_path / "t", **variables).stdout.strip() == seen

    def test_range_never_entered_is_said(self, tmp_path: Path) -> None:
        run(self.RANGES, tmp_path / "t", PASTA_CAPTURE_RANGE="range", PASTA_RANGE="stepp")
        assert "never entered" in rows(tmp_path / "t", "loss")["cause"][0]

    def test_start_and_stop(self, tmp_path: Path) -> None:
        code = """
        session.ensure()
        seen = [session.collecting()]
        session.stop(); seen.append(session.collecting())
        session.start(); seen.append(session.collecting())
        print(seen)
        """
        assert run(code, tmp_path / "t").stdout == "[True, False, True]\n"


def test_ranges_nest_a_thread(tmp_path: Path) -> None:
    run(
        """
        session.ensure()
        session.range_push("outer"); session.range_push("inner"); session.range_pop(); session.range_pop()
        session.range_pop()  # one too many is ignored
        session.finish("exit", 0)
        """,
        tmp_path / "t",
    )
    inner, outer = rows(tmp_path / "t", "range").iter_rows(named=True)
    assert (inner["name"], outer["name"]) == ("inner", "outer")
    assert inner["parent_id"] == outer["range_id"]
    assert outer["parent_id"] is None
    assert outer["start_ns"] <= inner["start_ns"] <= inner["end_ns"] <= outer["end_ns"]
