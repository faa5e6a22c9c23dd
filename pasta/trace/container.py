"""The two forms of a sealed trace, one file or one directory, read alike: a manifest and the parts of each table.

A trace is untrusted input. Nothing is unpacked to the disk, a member counts only when its path is one that
``TraceWriter`` makes, and no more bytes are read than the file has.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
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

    #: Parts of each table, ordered by rank and number.
    parts: dict[str, list[str]]

    def manifest_text(self) -> bytes:
        """Return the bytes of manifest.json."""

    def part(self, member: str) -> Path | bytes:
        """Return what polars scans for one part."""

    def close(self) -> None:
        """Let go of the file."""


class Directory:
    """A trace in directory form: polars maps its Parquet files into memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        self.parts = sort_parts(
            file.relative_to(path).as_posix() for file in files if file.is_file() and not file.is_symlink()
        )

    def manifest_text(self) -> bytes:
        with (self._path / MANIFEST).open("rb") as file:
            return file.read(MAX_MANIFEST_BYTES)

    def part(self, member: str) -> Path:
        return self._path / member

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
        except PastaError:
            self._zip.close()
            raise
        self.parts = sort_parts(info.filename for info in members)

    def manifest_text(self) -> bytes:
        return self._read(MANIFEST)

    def part(self, member: str) -> bytes:
        return self._read(member)

    def close(self) -> None:
        self._zip.close()

    def _read(self, member: str) -> bytes:
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


def read_manifest(container: Container, path: Path) -> dict[str, Any]:
    """Return the manifest; raises ``PastaError`` when it is broken or of a newer schema."""
    try:
        manifest = json.loads(container.manifest_text())
    except (ValueError, RecursionError) as error:
        raise broken(path, f"its {MANIFEST} is not JSON ({error})") from error
    except OSError as error:
        raise cannot_read(path, error) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise not_a_trace(path)
    version = manifest.get("schema_version")
    if not isinstance(version, int):
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
