"""What is not a whole trace of a known schema is refused with one clear error, whatever the bytes are."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pasta.errors import PastaError
from pasta.schema import SCHEMA_VERSION
from pasta.trace import Trace, TraceWriter
from pasta.trace.layout import MANIFEST
from pasta.trace.writer import Form

MEMBER = "kernel/part-0.parquet"


def write_trace(path: Path, form: Form) -> Path:
    with TraceWriter(path, form) as writer:
        writer.append("kernel", pl.DataFrame({"pid": [1, 2], "name": ["a", "b"], "start_ns": [3, 4]}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "file.pasta", "file")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "dir.pasta", "dir")


def read_all(path: Path) -> pl.DataFrame:
    with Trace.open(path) as trace:
        return trace.kernel.collect()


def rewrite(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Make ``path`` a ZIP file of ``members``."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def change_manifest(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    change(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def replace_part(directory: Path, part: pl.DataFrame | bytes) -> None:
    """Put another part in a trace directory, with the checksum that belongs to it."""
    if isinstance(part, bytes):
        (directory / MEMBER).write_bytes(part)
    else:
        part.write_parquet(directory / MEMBER)
    crc = zlib.crc32((directory / MEMBER).read_bytes())
    change_manifest(directory, lambda manifest: manifest["crc32"].update({MEMBER: crc}))


def test_both_forms_hold_the_same_members(file: Path, directory: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "unzipped")
    for name in (MEMBER, MANIFEST):
        assert (tmp_path / "unzipped" / name).read_bytes() == (directory / name).read_bytes()
    assert read_all(tmp_path / "unzipped").equals(read_all(file))


def test_what_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(PastaError, match=r"no\.pasta does not exist; check the path"):
        Trace.open(tmp_path / "no.pasta")
    (tmp_path / "empty.pasta").touch()
    with pytest.raises(PastaError, match=r"empty\.pasta is empty; record"):
        Trace.open(tmp_path / "empty.pasta")


def test_other_files_and_directories_are_not_traces(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "folder").mkdir()
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / MANIFEST).write_text('{"name": "of a browser"}')
    rewrite(tmp_path / "zip", {"a.txt": b"a"})
    os.mkfifo(tmp_path / "pipe")
    for name in ("text", "folder", "extension", "zip", "pipe"):
        with pytest.raises(PastaError, match=f"{name} is not a pasta trace; `pasta import`"):
            Trace.open(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("form", ["file", "directory"])
def test_a_trace_that_may_not_be_read_is_named(form: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(form)
    path.chmod(0)
    try:
        with pytest.raises(PastaError, match=r"cannot read .*Permission denied; check its permissions"):
            Trace.open(path)
    finally:
        path.chmod(0o700)


def test_an_unreadable_path_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(PastaError, match=r"cannot read .*Permission denied; check its permissions"):
        Trace.open(file)


def test_a_newer_schema_is_refused_with_the_remedy(directory: Path) -> None:
    change_manifest(directory, lambda manifest: manifest.update(schema_version=SCHEMA_VERSION + 1))
    with pytest.raises(PastaError, match=f"schema version {SCHEMA_VERSION + 1}.*pip install --upgrade"):
        Trace.open(directory)


def test_an_older_schema_is_read(directory: Path) -> None:
    change_manifest(directory, lambda manifest: manifest.update(schema_version=0))
    assert read_all(directory).height == 2


@pytest.mark.parametrize("version", [None, "1", True])
def test_a_manifest_without_a_version_is_damaged(directory: Path, version: Any) -> None:
    change_manifest(directory, lambda manifest: manifest.update(schema_version=version))
    with pytest.raises(PastaError, match=r"is damaged: .*schema_version"):
        Trace.open(directory)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xff", b"[" * 100_000], ids=["empty", "cut", "binary", "deep"])
def test_a_broken_manifest_is_damage(directory: Path, file: Path, text: bytes) -> None:
    (directory / MANIFEST).write_bytes(text)
    rewrite(file, {MANIFEST: text})
    for path in (directory, file):
        with pytest.raises(PastaError, match=r"is damaged: its manifest\.json is not JSON"):
            Trace.open(path)


def test_columns_of_another_version_are_null_or_left_out_with_a_note(directory: Path) -> None:
    replace_part(directory, pl.DataFrame({"name": ["x"], "colour": ["red"], "start_ns": [1]}))
    with Trace.open(directory) as trace:
        frame = trace.kernel.collect()
        assert frame.select("pid", "name", "start_ns", "grid_x").rows() == [(None, "x", 1, None)]
        assert "colour" not in frame.columns
        assert trace.notes == ["columns of `kernel` that this pasta does not know were left out: colour"]


def test_a_table_of_a_newer_pasta_is_left_out(directory: Path) -> None:
    shutil.copytree(directory / "kernel", directory / "hologram")
    with Trace.open(directory) as trace:
        assert trace.present == {"kernel"}


def test_a_column_of_another_type_is_damage(directory: Path) -> None:
    replace_part(directory, pl.DataFrame({"start_ns": ["soon"]}))
    with pytest.raises(PastaError, match=r"is damaged: .*`start_ns` of table `kernel` has type String"):
        read_all(directory)


def test_a_part_that_is_not_parquet_is_damage(file: Path, directory: Path) -> None:
    replace_part(directory, b"PAR1 junk PAR1")
    rewrite(file, {**members_of(file), MEMBER: b"PAR1 junk PAR1"})
    for path in (file, directory):
        with pytest.raises(PastaError, match=r"is damaged: kernel/part-0\.parquet is not Parquet"):
            read_all(path)


def test_a_part_that_is_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    os.rename(directory / MEMBER, tmp_path / "elsewhere.parquet")
    (directory / MEMBER).symlink_to(tmp_path / "elsewhere.parquet")
    assert read_all(directory).is_empty()


@pytest.mark.parametrize("name", ["../kernel/part-0.parquet", "/kernel/part-0.parquet", "kernel\\part-0.parquet"])
def test_a_member_with_a_path_outside_the_trace_is_damage(file: Path, name: str) -> None:
    rewrite(file, {**members_of(file), name: b""})
    with pytest.raises(PastaError, match="has a path outside the trace"):
        Trace.open(file)


def test_a_compressed_member_is_damage(file: Path) -> None:
    """A trace of a few kilobytes must not unpack to gigabytes."""
    rewrite(file, {**members_of(file), MEMBER: bytes(1 << 20)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(PastaError, match="is compressed"):
        Trace.open(file)


def test_members_that_share_their_bytes_are_damage(file: Path) -> None:
    """A list of a thousand members that all lie at the same place claims more than the file has."""
    with zipfile.ZipFile(file, "a") as archive:
        part = archive.getinfo(MEMBER)
        for number in range(1000):
            info = zipfile.ZipInfo(f"kernel/part-{number + 1}.parquet")
            info.header_offset, info.CRC = part.header_offset, part.CRC
            info.file_size = info.compress_size = part.file_size
            archive.filelist.append(info)
        archive._didModify = True
    with pytest.raises(PastaError, match="claim to be larger than the file"):
        Trace.open(file)


def test_a_file_cut_at_any_byte_is_damage(file: Path) -> None:
    whole = file.read_bytes()
    for size in range(1, len(whole), 97):
        file.write_bytes(whole[:size])
        with pytest.raises(PastaError, match=r"is damaged|is not a pasta trace"):
            read_all(file)


def test_damage_anywhere_in_a_file_gives_the_rows_or_an_error(file: Path) -> None:
    """The CRC-32 of each member shows damage to rows; damage to the ZIP file's own lists may also do no harm."""
    whole, rows = file.read_bytes(), read_all(file)
    damaged = 0
    for byte in range(0, len(whole), 13):
        changed = bytearray(whole)
        changed[byte] ^= 1 << byte % 8
        file.write_bytes(changed)
        try:
            found = read_all(file)
        except PastaError:
            damaged += 1
        else:
            assert found.equals(rows) or found.is_empty()
    assert damaged > 0.8 * len(range(0, len(whole), 13))


def test_damage_anywhere_in_a_part_of_a_directory_is_found(directory: Path) -> None:
    whole = (directory / MEMBER).read_bytes()
    for byte in range(0, len(whole), 13):
        changed = bytearray(whole)
        changed[byte] ^= 1 << byte % 8
        (directory / MEMBER).write_bytes(changed)
        with pytest.raises(PastaError, match="wrong checksum"):
            read_all(directory)


def test_parts_that_other_programs_added_are_read_unchecked(directory: Path) -> None:
    shutil.copy(directory / MEMBER, directory / "kernel" / "part-1.parquet")
    assert read_all(directory).height == 4


@pytest.mark.parametrize("form", ["file", "directory"])
def test_random_bytes_in_a_part_never_end_in_a_traceback(form: str, request: pytest.FixtureRequest) -> None:
    """Parquet footers of random bytes, with a right CRC-32 in the file form: polars' errors become ours."""
    path: Path = request.getfixturevalue(form)
    members = members_of(path) if path.is_file() else {}
    part = members.get(MEMBER) or (path / MEMBER).read_bytes()
    chance = random.Random(7)
    for _ in range(200):
        changed = bytearray(part)
        for _ in range(3):
            changed[chance.randrange(len(changed) - 2000, len(changed))] = chance.randrange(256)
        if path.is_file():
            rewrite(path, {**members, MEMBER: bytes(changed)})
        else:
            replace_part(path, bytes(changed))
        with contextlib.suppress(PastaError), Trace.open(path) as trace:
            assert trace.kernel.collect_schema().names()[0] == "pid"
