"""The two forms of a sealed trace, one file or one directory, read alike: a manifest and the parts of each table.

A trace is untrusted input. Nothing is unpacked to the disk, a member counts only when its path is one that
``TraceWriter`` makes, and no more bytes are read than the file has.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from pasta.errors import PastaError
from pasta.schema import SCHEMA_VERSION
from pasta.trace.layout import FORMAT, MANIFEST, MAX_MANIFEST_BYTES, PART, is_recording, set_aside

_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")

RECORD_AGAIN = "record or import it again"


class Container(Protocol):
    """A sealed trace on the disk."""

    manifest: dict[str, Any]
    #: Parts of each table, ordered by rank and number.
    parts: dict[str, list[str]]

    def part(self, member: str) -> Path | bytes:
        """Return what polars scans for one part; raises ``PastaError`` when its CRC-32 is wrong."""

    def close(self) -> None:
        """Let go of the file."""


class Directory:
    """A trace in directory form: polars maps its Parquet files into memory.

    Each is first read once to check it against the manifest (2 GB/s from the page cache), because polars may abort
    the process on a damaged page.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with (path / MANIFEST).open("rb") as file:
            self.manifest = parse_manifest(path, file.read(MAX_MANIFEST_BYTES))
        self._crc32 = as_dict(self.manifest.get("crc32"))
        files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        self.parts = sort_parts(
            file.relative_to(path).as_posix() for file in files if file.is_file() and not file.is_symlink()
        )

    def part(self, member: str) -> Path:
        path = self._path / member
        try:
            intact = member not in self._crc32 or file_crc32(path) == self._crc32[member]
        except OSError as error:
            raise cannot_read(path, error) from error
        if not intact:
            raise broken(self._path, f"{member} has a wrong checksum")
        return path

    def close(self) -> None:
        return None


class File:
    """A trace in one file: a ZIP of stored members.

    Polars cannot scan a range of a file, so the parts of a table are read into memory, still compressed, when the
    table is first asked for; polars then scans those bytes without a further copy. Their CRC-32 is checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise broken(path, f"its end cannot be read, was it copied whole? ({error})") from error
        members = self._zip.infolist()
        try:
            check_members(path, members)
            self.manifest = parse_manifest(path, self.part(MANIFEST))
        except PastaError:
            self._zip.close()
            raise
        self.parts = sort_parts(info.filename for info in members)

    def close(self) -> None:
        self._zip.close()

    def part(self, member: str) -> bytes:
        try:
            return self._zip.read(member)
        except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
            raise broken(self._path, f"{member}: {error}") from error


def check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Raise ``PastaError`` unless these are stored members of ``path`` with sizes and paths that a trace may have."""
    for info in members:
        if info.filename.startswith("/") or "\\" in info.filename or ".." in info.filename.split("/"):
            raise broken(path, f"its member {info.filename!r} has a path outside the trace")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise broken(path, f"its member {info.filename!r} is compressed")
    if sum(info.file_size for info in members) > path.stat().st_size:
        raise broken(path, "its members claim to be larger than the file")
    if MANIFEST not in (info.filename for info in members):
        raise not_a_trace(path)


def sort_parts(members: Iterable[str]) -> dict[str, list[str]]:
    """Group the members that are parts by table, in the order of rank (none first) and number."""
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for member in members:
        if match := PART.fullmatch(member):
            table, rank, number = match.groups()
            found[table].append((-(1 << 40) if rank is None else int(rank), int(number), member))
    return {table: [member for *_, member in sorted(parts)] for table, parts in sorted(found.items())}


def is_zip(path: Path) -> bool:
    """Return whether the file starts like a ZIP file."""
    with path.open("rb") as file:
        return file.read(4) in _ZIP_MAGIC


def find_unsealed(path: Path) -> Path | None:
    """Return the directory of the unsealed recording at ``path``, None when there is a trace or nothing.

    When pasta was killed while it sealed, the recording stands beside ``path`` (see ``layout.set_aside``).
    """
    try:
        if not path.exists() and set_aside(path).is_dir():
            return set_aside(path)
        return path if path.is_dir() and is_recording(path) else None
    except OSError as error:
        raise cannot_read(path, error) from error


def open_container(path: Path) -> Container:
    """Return the sealed trace at ``path``; raises ``PastaError`` when it is none."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            if not (path / MANIFEST).is_file():
                raise not_a_trace(path)
            return Directory(path)
        if not stat.S_ISREG(mode):
            raise not_a_trace(path)
        if path.stat().st_size == 0:
            raise PastaError(f"{path} is empty", RECORD_AGAIN)
        if not is_zip(path):
            raise not_a_trace(path)
        return File(path)
    except FileNotFoundError as error:
        raise PastaError(f"{path} does not exist", "check the path of the trace") from error
    except OSError as error:
        raise cannot_read(path, error) from error


def file_crc32(path: Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


def parse_manifest(path: Path, text: bytes) -> dict[str, Any]:
    """Return the manifest of the trace ``path``; raises ``PastaError`` when it is broken or of a newer schema."""
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise broken(path, f"its {MANIFEST} is not JSON ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise not_a_trace(path)
    version = manifest.get("schema_version")
    if type(version) is not int:
        raise broken(path, f"its {MANIFEST} has no schema_version")
    if version > SCHEMA_VERSION:
        raise PastaError(
            f"{path} has schema version {version}, this pasta reads up to {SCHEMA_VERSION}",
            "upgrade pasta: pip install --upgrade pasta-profiler",
        )
    return manifest


def as_list(value: Any) -> list[Any]:
    """Return ``value`` when it is a list, else an empty one: a manifest may hold anything."""
    return value if isinstance(value, list) else []


def as_dict(value: Any) -> dict[str, Any]:
    """Return ``value`` when it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def cannot_read(path: Path, error: OSError) -> PastaError:
    return PastaError(f"cannot read {path}: {error.strerror or error}", "check its permissions")


def broken(path: Path, why: str) -> PastaError:
    return PastaError(f"{path} is damaged: {why}", RECORD_AGAIN)


def not_a_trace(path: Path) -> PastaError:
    return PastaError(f"{path} is not a pasta trace", "`pasta import` converts other profilers' files")
