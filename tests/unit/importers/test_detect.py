"""Files are known by their content, refused by name when pasta cannot read them, and gathered into one import."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import real_traces
from kineto_maker import document, kernel, op

from pasta.errors import PastaError
from pasta.importers import Kind, detect, import_files
from pasta.importers.packed import Source
from pasta.importers.run import default_name
from pasta.trace import Trace

FOLDER = real_traces.folder()
CHROME = json.dumps([{"ph": "X", "name": "frame", "ts": 1, "dur": 2, "pid": 1, "tid": 1}])
KINETO = document([op("a", 0, 10), kernel("k", 20, 30, 1)])


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (KINETO, Kind.KINETO),
        (KINETO.replace('"schemaVersion": 1, ', ""), Kind.KINETO),
        ('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}', Kind.KINETO),
        (CHROME, Kind.CHROME),
        ("\n" + json.dumps({"otherData": {}, "traceEvents": json.loads(CHROME)}), Kind.CHROME),
        ("[[-1, 1, 37888, 7], [5, 2, 64, 7]]", Kind.TENSORBOARD_MEMORY),
        # Intel's unitrace: tools/unitrace/src/chromelogger.h of pti-gpu.
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op"}, {"ph": "X", "cat": "gpu_op"}]}', Kind.CHROME),
    ],
)
@pytest.mark.parametrize("name", ["trace.json", "trace.sqlite", "trace"])
def test_a_format_is_known_by_its_content_whatever_its_name(
    content: str, kind: Kind, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert detect(path) is kind
    path.write_bytes(gzip.compress(content.encode()))
    assert detect(path) is kind


@pytest.mark.parametrize(
    ("name", "content", "says", "fix"),
    [
        ("report.nsys-rep", b"\x00\x01\x02", "Nsight Systems report", "nsys export --type sqlite"),
        ("report.ncu-rep", b"\x00\x01\x02", "Nsight Compute report", "pasta record --memory"),
        ("empty.json", b"", "is empty", ""),
        ("notes.txt", b"hello", "cannot tell what", "--from"),
        ("spec.json", b'{"name": "x", "values": [1, 2]}', "cannot tell what", "--from"),
        ("et.json", b'{"schema": "1.0.1", "nodes": [{"id": 2, "rf_id": 0}]}', "execution trace", "export_chrome_trace"),
        (
            *("results.json", b'{"traceEvents":[{}\n,{"ph":"X","args":{"BeginNs":"1","DurationNs":"2"}}]}'),
            *("rocprof v1", "rocprofv3"),
        ),
    ],
)
def test_what_cannot_be_imported_is_refused_by_name_with_what_to_do(
    name: str, content: bytes, says: str, fix: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(PastaError) as error:
        import_files([path], tmp_path / "out.pasta")
    assert says in error.value.message
    assert fix in error.value.fix
    assert error.value.exit_code == 2
    assert [left.name for left in tmp_path.iterdir()] == [name]


def test_a_missing_file_and_no_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(PastaError, match="does not exist"):
        import_files([tmp_path / "gone.json"], tmp_path / "out.pasta")
    with pytest.raises(PastaError, match="no file to import"):
        import_files([], tmp_path / "out.pasta")


def test_files_of_different_formats_are_not_one_trace(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(KINETO)
    (tmp_path / "b.json").write_text(CHROME)
    with pytest.raises(PastaError, match=r"different formats: kineto \(1\), chrome \(1\)"):
        import_files([tmp_path], tmp_path / "out.pasta")
    assert import_files([tmp_path], tmp_path / "out.pasta", kind=Kind.CHROME).rows == {"range": 1, "process": 1}


def test_the_kind_can_be_forced(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(KINETO)
    summary = import_files([tmp_path / "a.json"], tmp_path / "out.pasta", kind=Kind.CHROME)
    assert (summary.kind, summary.rows["range"]) == (Kind.CHROME, 2)


def test_a_directory_without_traces_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no trace")
    (tmp_path / "more.txt").write_text("no trace either")
    with pytest.raises(PastaError, match="nothing to import in"):
        import_files([tmp_path], tmp_path / "out.pasta")


def test_a_directory_with_one_foreign_file_says_what_to_do_about_it(tmp_path: Path) -> None:
    (tmp_path / "report.nsys-rep").write_bytes(b"\x00\x01")
    with pytest.raises(PastaError, match="Nsight Systems report"):
        import_files([tmp_path], tmp_path / "out.pasta")


def test_links_out_of_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text(KINETO)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(PastaError, match="nothing to import in"):
        import_files([folder], tmp_path / "out.pasta")


def test_an_existing_trace_is_not_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(KINETO)
    (tmp_path / "out.pasta").write_text("precious")
    with pytest.raises(PastaError, match="exists"):
        import_files([tmp_path / "a.json"], tmp_path / "out.pasta")
    assert (tmp_path / "out.pasta").read_text() == "precious"
    import_files([tmp_path / "a.json"], tmp_path / "out.pasta", overwrite=True)
    with Trace.open(tmp_path / "out.pasta") as trace:
        assert "kernel" in trace.present


def test_the_trace_is_named_after_the_input_and_put_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"a/run.pt.trace.json.gz": "run.pasta", "x/report1.sqlite": "report1.pasta", ".json": ".json.pasta"}
    assert {path: default_name(Path(path)) for path in names} == names
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "run.json").write_text(KINETO)
    monkeypatch.chdir(tmp_path)
    assert import_files(["in/run.json"]).output == Path("run.pasta")
    assert (tmp_path / "run.pasta").is_file()
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["run.json"]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(KINETO)
    with pytest.raises(PastaError, match="cannot write"):
        import_files([tmp_path / "a.json"], tmp_path / "no such directory" / "out.pasta")


def test_progress_ends_at_the_size_of_the_files(tmp_path: Path) -> None:
    sizes = []
    for number in range(2):
        path = tmp_path / f"rank{number}.json"
        path.write_text(KINETO)
        sizes.append(path.stat().st_size)
    steps: list[tuple[int, int]] = []
    import_files([tmp_path], tmp_path / "out.pasta", progress=lambda done, size: steps.append((done, size)))
    assert steps[-1] == (sum(sizes), sum(sizes))
    assert steps == sorted(steps)


def test_a_trace_can_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(KINETO)
    import_files([tmp_path / "a.json"], tmp_path / "out.pasta", form="dir")
    assert (tmp_path / "out.pasta").is_dir()


def test_packed_files_may_have_several_members_and_padding(tmp_path: Path) -> None:
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(b"one, ") + gzip.compress(b"two") + b"\0" * 512)
    source = Source.of(path, tmp_path)
    assert b"".join(source.read()) == b"one, two"
    assert source.broken is None


def test_a_damaged_packed_file_gives_its_beginning(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(bytes(range(256)) * 4096, 1))
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    path = tmp_path / "trace.gz"
    path.write_bytes(bytes(data))
    source = Source.of(path, tmp_path)
    content = b"".join(source.read())
    assert (bytes(range(256)) * 4096).startswith(content)
    assert source.broken is not None


@pytest.mark.skipif(FOLDER is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_every_public_trace_is_known_or_refused_by_name() -> None:
    assert FOLDER is not None
    kinds = {"kineto": {Kind.KINETO, Kind.TENSORBOARD_MEMORY}, "nsys": {Kind.NSYS}, "xla": {Kind.XPLANE}}
    kinds |= {"rpd": {Kind.RPD, Kind.CHROME}}
    kinds |= {"rocprofv3": {Kind.ROCPROFV3_CSV, Kind.ROCPROFV3_JSON, Kind.ROCPD}}
    refused = {}
    for path in sorted(FOLDER.glob("*/*")):
        try:
            kind = detect(path)
        except PastaError as error:
            refused[path.name] = error
        else:
            assert kind in kinds[path.parent.name], path.name
    assert [name for name, error in refused.items() if "cannot tell what" in error.message or not error.fix] == []
