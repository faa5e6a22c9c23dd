"""Recordings, made with the tests' own shard encoder, become traces: the same when sealed and when opened unsealed."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from shard_encoder import Row, ShardEncoder
from shard_rows import rows_of

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.trace import Trace, layout, recording, writer
from pasta.trace.recording import RUNNING, UNFLUSHED, RootStatus
from pasta.trace.seal import seal
from pasta.trace.writer import Form

BEGIN = 5_000_000
#: Time of day at BEGIN.
REALTIME = 1_700_000_000_000_000_000


def process(start_ns: int = BEGIN, **more: Any) -> Row:
    return {"start_ns": start_ns, "parent_pid": 1, "host": "node1", "command": "./train --fast", **more}


def ended(start_ns: int = BEGIN, end_ns: int = BEGIN + 900, status: int = 0) -> Row:
    return {"start_ns": start_ns, "end_ns": end_ns, "how_ended": "exit", "exit_status": status}


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return trace.table(table).select(columns).collect().rows()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A recording of two ranks, each with a kernel; rank 1 writes its rows out of order and in two chunks."""
    directory = tmp_path / "t.pasta"
    zero = ShardEncoder().add("process", [process(rank=0)]).add("kernel", [{"start_ns": BEGIN + 50, "name": "a"}])
    zero.add("clock", [{"start_ns": BEGIN + 4, "source": "realtime", "source_ns": REALTIME + 4, "error_ns": 30}])
    zero.add("process", [ended()]).write(directory, 70)
    backends = "opencl: run on a CPU; torch: run on 2.13"
    one = ShardEncoder().add("process", [process(BEGIN + 10, rank=1, backends=backends)])
    one.add("kernel", [{"start_ns": BEGIN + 60, "name": "c"}, {"start_ns": BEGIN + 40, "name": "a"}])
    one.add("kernel", [{"start_ns": BEGIN + 45, "end_ns": BEGIN + 46, "name": "b"}])
    one.add("process", [ended(BEGIN + 10)]).write(directory, 71)
    return directory


def test_sealing_replaces_the_directory_by_the_trace(directory: Path) -> None:
    summary = seal(directory)
    assert os.listdir(directory.parent) == ["t.pasta"]
    assert directory.is_file()
    assert summary.path == directory
    assert summary.rows == {"process": 2, "kernel": 4, "clock": 1}
    assert summary.bytes == directory.stat().st_size
    assert summary.time_span_ns == (0, 900)
    assert summary.losses == []


def test_rows_get_pid_and_rank_and_times_since_the_first_process(directory: Path) -> None:
    seal(directory)
    with Trace.open(directory) as trace:
        assert rows(trace, "kernel", "rank", "pid", "start_ns", "end_ns", "name") == [
            (0, 70, 50, None, "a"),
            (1, 71, 40, None, "a"),
            (1, 71, 45, 46, "b"),
            (1, 71, 60, None, "c"),
        ]
        assert rows(trace, "process", "pid", "rank", "start_ns", "end_ns", "how_ended", "exit_status") == [
            (70, 0, 0, 900, "exit", 0),
            (71, 1, 10, 900, "exit", 0),
        ]
        assert trace.notes == []


def test_the_manifest_describes_the_recording(directory: Path) -> None:
    about = {"anchor_ns": BEGIN - 100, "command": ["./train", "--fast"], "options": {"trace": "all"}}
    (directory / layout.RECORDING_JSON).write_text(json.dumps(about))
    seal(directory, manifest_extra={"options": {"trace": "kernel"}})
    with Trace.open(directory) as trace:
        manifest = trace.manifest
        assert rows(trace, "process", "start_ns") == [(100,), (110,)]
    assert manifest["schema_version"] == 1
    assert manifest["command"] == ["./train", "--fast"]
    assert manifest["options"] == {"trace": "kernel"}
    assert manifest["clock"] == {
        "anchor_ns": BEGIN - 100,
        "realtime_ns": REALTIME - 100,
        "error_ns": 30,
    }
    assert manifest["backends"] == {"opencl": "run on a CPU", "torch": "run on 2.13"}
    assert manifest["rows"] == {"process": 2, "kernel": 4, "clock": 1}
    assert manifest["time_span_ns"] == [100, 1000]
    assert manifest["recovered"] is False


def test_devices_are_listed_once_however_many_processes_see_them(tmp_path: Path) -> None:
    for pid in (1, 2):
        device = {"device_id": 0, "name": "Reference", "kind": "cpu", "multiprocessors": 2}
        ShardEncoder().add("process", [process(), ended()]).add("device", [device]).write(tmp_path / "t.pasta", pid)
    seal(tmp_path / "t.pasta")
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert trace.manifest["devices"] == [{"name": "Reference", "kind": "cpu", "multiprocessors": 2}]
        assert rows(trace, "device", "pid", "device_id") == [(1, 0), (2, 0)]


@pytest.mark.parametrize("form", ["file", "dir"])
def test_an_unsealed_recording_opens_with_the_tables_that_sealing_gives(directory: Path, form: Form) -> None:
    with Trace.open(directory) as unsealed:
        assert unsealed.manifest["recovered"] is True
        assert "was not sealed" in unsealed.notes[-1]
        recovered = {name: unsealed.table(name).collect() for name in TABLES}
        present = unsealed.present
    seal(directory, form=form)
    with Trace.open(directory) as sealed:
        assert sealed.present == present
        for name, frame in recovered.items():
            assert_frame_equal(sealed.table(name).collect(), frame)


def test_opening_an_unsealed_recording_leaves_it_alone_and_cleans_up(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(os.listdir(directory))
    trace = Trace.open(directory)
    assert len(os.listdir(scratch)) == 1
    trace.close()
    assert os.listdir(scratch) == []
    assert sorted(os.listdir(directory)) == before


def test_a_killed_process_ends_at_the_last_thing_seen_and_its_tail_is_a_loss(tmp_path: Path) -> None:
    shard = ShardEncoder().add("process", [process(rank=4)]).add("api", [{"start_ns": BEGIN + 7, "end_ns": BEGIN + 77}])
    shard.write(tmp_path / "t.pasta", 9)
    summary = seal(tmp_path / "t.pasta")
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert rows(trace, "process", "pid", "end_ns", "how_ended", "exit_signal") == [(9, 77, "killed", None)]
        assert rows(trace, "loss", "pid", "rank", "start_ns", "source", "records", "cause") == [
            (9, 4, 77, "session", None, UNFLUSHED)
        ]
    assert summary.losses == [{"source": "session", "cause": UNFLUSHED}]


@pytest.mark.parametrize(
    ("status", "recorded", "expected"),
    [
        pytest.param(RootStatus(9, exit_signal=9), [process()], ("killed", None, 9), id="killed"),
        pytest.param(RootStatus(9, exit_status=3), [process()], ("_exit", 3, None), id="exited past every hook"),
        pytest.param(RootStatus(9, exit_status=3), [process(), ended()], ("exit", 3, None), id="exited"),
        pytest.param(RootStatus(9, exit_signal=11), [process(), ended()], ("killed", None, 11), id="crashed in exit"),
        pytest.param(RootStatus(8, exit_status=3), [process()], ("killed", None, None), id="another process"),
    ],
)
def test_the_root_process_gets_the_status_that_its_parent_saw(
    tmp_path: Path, status: RootStatus, recorded: list[Row], expected: tuple[Any, ...]
) -> None:
    ShardEncoder().add("process", recorded).write(tmp_path / "t.pasta", 9)
    seal(tmp_path / "t.pasta", root_status=status)
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert rows(trace, "process", "how_ended", "exit_status", "exit_signal") == [expected]


def test_an_image_that_another_follows_ended_by_exec(tmp_path: Path) -> None:
    for generation in (0, 1):
        shard = ShardEncoder().add("process", [process(BEGIN + generation * 100)])
        shard.write(tmp_path / "t.pasta", 9, generation)
    seal(tmp_path / "t.pasta", root_status=RootStatus(9, exit_signal=15))
    with Trace.open(tmp_path / "t.pasta") as trace:
        ends = rows(trace, "process", "start_ns", "how_ended", "exit_signal")
        assert ends == [(0, "exec", None), (100, "killed", 15)]


def test_a_process_that_still_runs_has_no_end(tmp_path: Path) -> None:
    path = ShardEncoder().add("process", [process()]).write(tmp_path / "t.pasta", 9)
    with path.open("rb") as shard:
        fcntl.flock(shard, fcntl.LOCK_EX)  # as the process holds it while it lives
        with Trace.open(tmp_path / "t.pasta") as trace:
            assert rows(trace, "process", "how_ended", "end_ns") == [(None, None)]
            assert rows(trace, "loss", "cause") == [(RUNNING,)]


def test_a_shard_without_a_process_row_still_has_a_process(tmp_path: Path) -> None:
    ShardEncoder().add("kernel", [{"start_ns": 40, "end_ns": 60}]).write(tmp_path / "t.pasta", 9)
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert rows(trace, "process", "pid", "start_ns", "end_ns", "how_ended") == [(9, 0, 20, "killed")]


def test_damage_in_a_shard_becomes_a_loss_of_its_process(tmp_path: Path) -> None:
    shard = ShardEncoder().add("process", [process(rank=2), ended()])
    whole = len(shard.data)
    shard.add("kernel", [{"start_ns": BEGIN}, {"start_ns": BEGIN + 1}])
    shard.data = shard.data[:-1]
    shard.write(tmp_path / "t.pasta", 9)
    assert whole < len(shard.data)
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert rows(trace, "loss", "pid", "rank", "source", "table", "records") == [(9, 2, "shard", "kernel", 2)]


def test_a_shard_that_cannot_be_read_is_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ShardEncoder().add("process", [process(), ended()]).write(tmp_path / "t.pasta", 9)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(recording, "Shard", refuse)
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert rows(trace, "loss", "pid", "source", "cause") == [
            (9, "shard", "its shard cannot be read: Permission denied")
        ]


def test_other_files_in_a_recording_are_left_out(directory: Path, tmp_path: Path) -> None:
    (directory / layout.RECORDING_ID).write_text("abc")
    (directory / "shard-x.pastashard").write_text("junk")
    (directory / "shard-99-0.pastashard").symlink_to(directory / "shard-70-0.pastashard")
    with Trace.open(directory) as trace:
        assert rows(trace, "process", "pid") == [(70,), (71,)]
        assert trace.loss.collect().is_empty()


@pytest.mark.parametrize("text", ["{", "[]", '{"anchor_ns": "soon"}', "[" * 100_000])
def test_a_broken_recording_json_does_not_matter(directory: Path, text: str) -> None:
    (directory / layout.RECORDING_JSON).write_text(text)
    with Trace.open(directory) as trace:
        assert rows(trace, "process", "start_ns") == [(0,), (10,)]


def test_a_recording_of_nothing_is_an_empty_trace(tmp_path: Path) -> None:
    directory = tmp_path / "t.pasta"
    directory.mkdir()
    (directory / layout.RECORDING_ID).write_text("abc")
    seal(directory)
    with Trace.open(directory) as trace:
        assert trace.present == frozenset()
        assert trace.manifest["time_span_ns"] is None


def test_another_output_keeps_the_recording(directory: Path, tmp_path: Path) -> None:
    seal(directory, tmp_path / "copy.pasta")
    assert directory.is_dir()
    with Trace.open(tmp_path / "copy.pasta") as trace:
        assert trace.kernel.collect().height == 4


def test_a_failure_while_sealing_keeps_the_recording(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "sync", full)
    with pytest.raises(PastaError, match=r"cannot write .*No space left on device"):
        seal(directory)
    assert sorted(os.listdir(directory.parent)) == ["t.pasta"]
    assert sorted(os.listdir(directory)) == ["shard-70-0.pastashard", "shard-71-0.pastashard"]


def test_no_room_to_recover_names_the_remedy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "sync", full)
    with pytest.raises(PastaError, match=r"cannot recover .*No space left on device; set TMPDIR"):
        Trace.open(directory)


def test_pasta_killed_between_the_two_renames_loses_nothing(directory: Path) -> None:
    os.rename(directory, layout.set_aside(directory))  # the first of the two
    with Trace.open(directory) as trace:
        assert trace.kernel.collect().height == 4
        assert "t.pasta.recording was not sealed" in trace.notes[-1]


def test_a_recording_set_aside_earlier_is_not_overwritten(directory: Path) -> None:
    earlier = layout.set_aside(directory)
    ShardEncoder().add("process", [process()]).write(earlier, 5)
    seal(directory)
    assert os.listdir(earlier) == ["shard-5-0.pastashard"]
    assert sorted(os.listdir(directory.parent)) == ["t.pasta", "t.pasta.recording"]


def by_column(row: Row) -> list[tuple[str, str]]:
    """A row in a form that can be compared and sorted."""
    return sorted((name, repr(value)) for name, value in row.items())


@pytest.mark.parametrize("name", ["kernel", "range", "tensor", "access_object"])
@given(data=st.data())
@settings(max_examples=15)
def test_any_rows_of_several_processes_survive_sealing(tmp_path_factory: Any, name: str, data: st.DataObject) -> None:
    """Every row comes out once, with its pid, its times less the anchor (here 0), whatever is in it."""
    directory = tmp_path_factory.mktemp("recording") / "t.pasta"
    expected = []
    for pid in (1, 2):
        recorded = data.draw(st.lists(rows_of(TABLES[name]), max_size=4))
        shard = ShardEncoder().add("process", [process(), ended()]).add(name, recorded)
        shard.write(directory, pid)
        expected += [{"pid": pid, "rank": None, **row} for row in recorded]
    (directory / layout.RECORDING_JSON).write_text('{"anchor_ns": 0}')
    seal(directory)
    with Trace.open(directory) as trace:
        found = trace.table(name).collect().to_dicts()
    assert sorted(map(by_column, found)) == sorted(map(by_column, expected))
    starts = [row["start_ns"] for row in found if row.get("start_ns") is not None]
    assert starts == sorted(starts)


def test_chunks_of_many_processes_are_merged_in_time_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 processes take turns, a chunk each: launch i starts at i, so the order must be 0, 1, 2, ..."""
    monkeypatch.setattr(recording, "MAX_ROWS", 4)
    monkeypatch.setattr(writer, "PART_ROWS", 8)
    for pid in range(3):
        shard = ShardEncoder().add("process", [process(0), ended(0, 100)])
        for chunk in range(10):
            starts = [30 * chunk + 3 * i + pid for i in range(10)]
            shard.add("kernel", [{"start_ns": start} for start in reversed(starts)])
        shard.write(tmp_path / "t.pasta", pid)
    seal(tmp_path / "t.pasta")
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert rows(trace, "kernel", "start_ns") == [(start,) for start in range(300)]
        assert max(frame.height for frame in trace.batches("kernel")) <= 8
