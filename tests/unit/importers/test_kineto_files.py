"""Kineto files as they are found: several ranks, cut, damaged or hostile; and what the manifest says of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_maker import PID, Raw, call, column, document, dumps, event, imported, kernel, op, packed, rows

from pasta.errors import PastaError
from pasta.importers import Kind, detect, import_files

STEP = [op("aten::add", 0, 5000, External_id=1), call("cudaLaunchKernel", 100, 200, 1), kernel("k", 300, 400, 1)]


def distributed(rank: int, world_size: int = 2) -> dict[str, int | str]:
    return {"backend": "nccl", "rank": rank, "world_size": world_size}


def test_a_directory_of_ranks_is_one_trace(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        events = [event("cpu_op", "aten::add", 1000 * rank, 1000 * rank + 10, pid=100 + rank)]
        text = document(events, distributedInfo=distributed(rank))
        (folder / f"rank{rank}.json.gz").write_bytes(packed(text))
    (folder / "notes.txt").write_text("no trace")
    summary = import_files([folder], tmp_path / "out.pasta")
    assert (summary.kind, summary.rows["op"]) == (Kind.KINETO, 2)
    with imported(tmp_path, *((folder / f"rank{rank}.json.gz").read_bytes() for rank in range(2))) as trace:
        assert rows(trace, "op", "rank", "pid", "start_ns") == [
            {"rank": 0, "pid": 100, "start_ns": 0},
            {"rank": 1, "pid": 101, "start_ns": 1000},
        ]
        assert rows(trace, "process", "pid", "rank", "world_size") == [
            {"pid": 100, "rank": 0, "world_size": 2},
            {"pid": 101, "rank": 1, "world_size": 2},
        ]


def test_ranks_in_containers_may_have_the_same_pid(tmp_path: Path) -> None:
    texts = [document(STEP, distributedInfo=distributed(rank)) for rank in range(2)]
    with imported(tmp_path, *texts) as trace:
        pids = {row["rank"]: row["pid"] for row in rows(trace, "kernel")}
        assert pids[0] == PID
        assert pids[1] != PID
        assert any(str(PID) in note for note in trace.manifest["import"]["notes"])


def test_new_pids_do_not_meet_those_made_for_text(tmp_path: Path) -> None:
    events = [op("a", 0, 10) | {"pid": "one"}, op("b", 0, 10) | {"pid": "two"}, op("c", 0, 10) | {"pid": 5}]
    with imported(tmp_path, document(events), document(events)) as trace:
        assert len({row["pid"] for row in rows(trace, "op")}) == 6


def test_a_bare_list_of_events_is_read_too(tmp_path: Path) -> None:
    with imported(tmp_path, dumps(STEP)) as trace:
        assert column(trace, "kernel", "name") == ["k"]


def test_spelling_and_types_of_arguments_vary(tmp_path: Path) -> None:
    strange = kernel("k", 300, 400, 1) | {
        "args": {"device": "0", "stream": 7.0, "correlation": "1", "grid": [4, 1], "block": "wide"}
    }
    with imported(tmp_path, document([*STEP[:2], strange, op("odd", 600, 700) | {"args": [1, 2]}])) as trace:
        columns = ("device_id", "stream_id", "correlation_id", "op_id", "grid_x", "block_x")
        assert [tuple(row.values()) for row in rows(trace, "kernel", *columns)] == [(0, 7, 1, 1, None, None)]


def test_huge_numbers_become_null_and_are_counted(tmp_path: Path) -> None:
    huge = kernel("k", 0, 10, 1, registers_per_thread=2**40, grid=[2**70, 1, 1], block=[Raw("1e999"), 1, 1])
    with imported(tmp_path, document([huge])) as trace:
        assert rows(trace, "kernel", "registers", "grid_x", "grid_y", "block_x") == [
            {"registers": None, "grid_x": None, "grid_y": 1, "block_x": None}
        ]
        assert sum(trace.manifest["import"]["skipped"].values()) == 3


@pytest.mark.parametrize("number", [2**70, -1, "soon", [1], 2**62])
def test_a_header_with_absurd_numbers_is_ignored(tmp_path: Path, number: object) -> None:
    rank = {"rank": number, "world_size": number}
    listed = [{"id": number, "totalGlobalMem": number, "warpSize": number}, 5]
    text = document(STEP, baseTimeNanoseconds=number, distributedInfo=rank, deviceProperties=listed)
    with imported(tmp_path, text) as trace:
        assert rows(trace, "kernel", "start_ns", "rank") == [{"start_ns": 300, "rank": None}]


def test_nested_and_non_finite_arguments_do_not_hurt(tmp_path: Path) -> None:
    nested = Raw("[" * 200 + "]" * 200)
    events = [
        op("a", 0, 10, deep=nested, value=Raw("NaN")),
        op("b", 20, 30, occupancy={"limits": [{"x": 1}, {"y": 2}]}),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "op", "name") == ["a", "b"]


def test_an_event_that_is_not_json_costs_only_itself(tmp_path: Path) -> None:
    text = document([op("a", 0, 10), op("b", 20, 30), op("c", 40, 50)])
    broken = text.replace('"name": "b"', '"name": "C:\\q", "x": -nan')
    with imported(tmp_path, broken) as trace:
        assert column(trace, "op", "name") == ["a", "c"]
        assert trace.manifest["import"]["skipped"] == {"element that is not JSON": 1}


def test_text_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    text = document([op("caf\xe9 \ud800", 0, 10), op("other", 20, 30)])
    raw = text.encode("utf-8").replace(b"caf\\u00e9", b"caf\xff")
    with imported(tmp_path, raw) as trace:
        name = column(trace, "op", "name")[0]
        assert name.startswith("caf\ufffd")
        assert name.encode("utf-8").decode("utf-8") == name


@given(cut=st.integers(1, 100))
@settings(max_examples=40)
def test_a_cut_file_gives_what_was_whole_and_says_where_it_broke(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events = [op(f"op{number}", number * 100, number * 100 + 50) for number in range(20)]
    text = document(events)
    first, end = text.index('{"ph"'), text.rindex("}, ") if "}, " in text else len(text)
    at = first + (end - first) * cut // 101
    whole = [n for n in range(20) if 0 <= text.find("}}", text.index(f'"op{n}"')) < at - 1]
    folder = tmp_path_factory.mktemp("cut")
    if not whole:
        with pytest.raises(PastaError, match=r"nothing to import: rank0\.json: .* at byte "):
            imported(folder, text[:at])
        assert [path.name for path in folder.iterdir()] == ["rank0.json"]
        return
    with imported(folder, text[:at]) as trace:
        assert column(trace, "op", "name") == [f"op{number}" for number in whole]
        (loss,) = rows(trace, "loss", "source", "records", "cause")
        assert (loss["source"], loss["records"]) == ("import", None)
        assert " at byte " in loss["cause"]
        assert any("incomplete" in note for note in trace.manifest["import"]["notes"])


def test_a_cut_gzip_gives_what_was_whole(tmp_path: Path) -> None:
    events = [op(f"op{number}", number * 100, number * 100 + 50, value=number**9) for number in range(5000)]
    data = packed(document(events))
    with imported(tmp_path, data[: len(data) // 2]) as trace:
        names = column(trace, "op", "name")
        assert 1000 < len(names) < 4000
        assert names == [f"op{number}" for number in range(len(names))]
        (loss,) = rows(trace, "loss", "cause")
        assert "its gzip data ends early" in loss["cause"]


def test_a_bomb_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pasta.importers.packed.FREE_UNPACKED_BYTES", 1 << 20)
    bomb = gzip.compress(document([]).replace("[", "[" + " " * (64 << 20)).encode(), 9)
    (tmp_path / "bomb.json.gz").write_bytes(bomb)
    with pytest.raises(PastaError, match="unpacks to more than") as error:
        import_files([tmp_path / "bomb.json.gz"], tmp_path / "out.pasta", kind=Kind.KINETO)
    assert error.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.json.gz"]


def test_a_trace_without_known_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text(document([]))
    with pytest.raises(PastaError, match=r"nothing to import from empty\.json"):
        import_files([tmp_path / "empty.json"], tmp_path / "out.pasta")


def test_the_manifest_says_what_was_read_and_what_has_no_place(tmp_path: Path) -> None:
    arrow = {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 1}
    counter = {"ph": "C", "cat": "hardware_counters", "name": "sm", "pid": 0, "ts": 1, "args": {"": 1}}
    events = [kernel("k", 0, 10, 1, **{"warps per SM": 4.0}), arrow, arrow, counter]
    with imported(tmp_path, document(events, cuda_runtime_version=12040, cupti_version=22)) as trace:
        said = trace.manifest["import"]
        assert (said["kind"], said["version"]) == ("kineto", "schema 1, cuda_runtime 12040, cupti 22")
        (file,) = said["files"]
        assert (file["name"], file["bytes"]) == ("rank0.json", (tmp_path / "rank0.json").stat().st_size)
        assert said["unplaced"] == {
            "arrows of category ac2g; the events' own ids say the same": 2,
            "events of category 'hardware_counters', phase 'C'": 1,
            "kernel: warps per SM": 1,
        }
        assert said["source"]["rank0.json"]["cupti_version"] == 22


def test_detection_is_by_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(packed(document(STEP)))
    assert detect(path) is Kind.KINETO
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "frame", "ts": 1, "dur": 1}]}))
    assert detect(path) is Kind.CHROME
