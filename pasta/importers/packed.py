"""Input files, plain or gzip, read as a stream with bounds: a bomb is refused, a cut file gives what was whole."""

from __future__ import annotations

import hashlib
import io
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pasta.errors import PastaError

#: Bytes read from disk at a time.
CHUNK = 1 << 20

#: A packed file may unpack to this much whatever its size …
FREE_UNPACKED_BYTES = 1 << 30
#: … and beyond that to this many times its size. Real traces pack 10:1 to 30:1, DEFLATE ends at 1032:1.
MAX_RATIO = 250

_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\x00"
#: The header of a rollback journal, as far as SQLite zeroes it when a transaction is over (journal_mode=PERSIST).
_JOURNAL_HEADER = 28


@dataclass
class Source:
    """One input file. ``read`` streams its unpacked content; ``plain`` is a path that a library may open.

    ``broken`` is set while reading when the file ends before its packed content does.
    """

    path: Path
    size: int
    folder: Path
    tick: Callable[[int], None] = field(default=lambda count: None, repr=False)
    broken: str | None = None

    @classmethod
    def of(cls, path: Path, folder: Path) -> Source:
        """Return the source for the file ``path``, with ``folder`` for unpacked copies."""
        try:
            if not path.is_file():
                raise PastaError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
            return cls(path, path.stat().st_size, folder)
        except OSError as error:
            raise PastaError(f"cannot read {path}: {error.strerror or error}") from error

    def read(self, chunk: int = CHUNK) -> Iterator[bytes]:
        """Yield the unpacked content in pieces; stops at the end or, setting ``broken``, where a packed file is cut.

        Raises ``PastaError`` for content that is not gzip inside, for a bomb and for a file that cannot be read.
        """
        try:
            with open(self.path, "rb") as file:
                pieces = iter(lambda: file.read(chunk), b"")
                if file.peek(2)[:2] == _GZIP:
                    yield from self._unpack(pieces)
                else:
                    for piece in pieces:
                        self.tick(len(piece))
                        yield piece
        except OSError as error:
            raise PastaError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _unpack(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        limit = max(FREE_UNPACKED_BYTES, MAX_RATIO * self.size)
        unpacked = 0
        stream = zlib.decompressobj(wbits=31)
        started = False
        for piece in pieces:
            self.tick(len(piece))
            while piece:
                if stream.eof:
                    if not piece.startswith(_GZIP[: len(piece)]):
                        return  # padding after the last member, as gzip itself ignores it
                    stream = zlib.decompressobj(wbits=31)
                    started = False
                try:
                    data = stream.decompress(piece, 4 * CHUNK)
                except zlib.error as error:
                    self.broken = f"its gzip data is damaged after {unpacked} unpacked bytes ({error})"
                    return
                started = True
                piece = stream.unconsumed_tail or stream.unused_data
                unpacked += len(data)
                if unpacked > limit:
                    raise PastaError(
                        f"{self.path} unpacks to more than {MAX_RATIO} times its size",
                        "if you trust it, unpack it with gunzip and import the result",
                    )
                if data:
                    yield data
        if started and not stream.eof:
            rest = stream.flush()
            if rest:
                unpacked += len(rest)
                yield rest
            self.broken = f"its gzip data ends early, after {unpacked} unpacked bytes"

    def head(self, size: int = 65536) -> bytes:
        """Return the first ``size`` unpacked bytes."""
        start = io.BytesIO()
        silent = Source(self.path, self.size, self.folder)
        for piece in silent.read(size):
            start.write(piece)
            if start.tell() >= size:
                break
        return start.getvalue()[:size]

    @property
    def plain(self) -> Path:
        """A path with the unpacked content: the file itself, or a copy in the import's scratch folder.

        A packed file that is cut cannot be opened by a library: ``PastaError``.
        """
        with open(self.path, "rb") as file:
            if file.read(2) != _GZIP:
                return self.path
        copy = self.folder / f"{hashlib.sha256(str(self.path).encode()).hexdigest()[:16]}.plain"
        if not copy.exists():
            with open(copy, "wb") as out:
                for piece in self.read():
                    out.write(piece)
            if self.broken:
                copy.unlink()
                raise PastaError(f"{self.path} is incomplete: {self.broken}", "fetch or export the file again")
        return copy

    def sqlite_tables(self, head: bytes) -> dict[str, frozenset[str]]:
        """Return the tables and views with their columns when ``head`` is that of a SQLite database, else nothing."""
        if not head.startswith(_SQLITE):
            return {}
        with database_errors(self.path), closing(connect(self.plain)) as database:
            return {name: columns(database, name) for name in names(database, "type IN ('table', 'view')")}

    def digest(self) -> str:
        """Return the SHA-256 of the file as it is on disk."""
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            for piece in iter(lambda: file.read(CHUNK), b""):
                digest.update(piece)
        return digest.hexdigest()


@contextmanager
def scratch(beside: Path | None = None) -> Iterator[Path]:
    """A folder for unpacked copies and spooled rows that is gone afterwards, whatever happened.

    It stands in the directory ``beside``, where the trace goes: ``/tmp`` may be memory, or small.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=".pasta-import-", dir=beside)
    except OSError as error:
        raise PastaError(f"cannot write in {beside or tempfile.gettempdir()}: {error.strerror or error}") from error
    with folder as path:
        yield Path(path)


def connect(path: Path) -> sqlite3.Connection:
    """Open a database that belongs to somebody else: read only, nothing created beside it.

    Raises ``PastaError`` while a journal says that it is being written, or that its writer died. One in WAL mode is
    opened as immutable, because any other reader of it leaves a ``-wal`` and a ``-shm`` file behind.
    """
    with open(path, "rb") as file:
        wal_mode = file.read(20)[18:19] == b"\x02"
    for suffix in ("-journal", "-wal"):
        journal = path.with_name(path.name + suffix)
        if journal.exists():
            with open(journal, "rb") as file:
                if any(file.read(_JOURNAL_HEADER)):
                    raise PastaError(
                        f"{path} is being written, or its writer was killed: {journal.name} holds a part of it",
                        f"wait until it is done, or import a copy made with: sqlite3 {path.name} '.backup COPY'",
                    )
    mode = "mode=ro&immutable=1" if wal_mode else "mode=ro"
    database = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=2.0)
    database.text_factory = partial(str, encoding="utf-8", errors="replace")
    return database


def names(database: sqlite3.Connection, condition: str) -> list[str]:
    """Return what ``database`` has under a name and ``condition``, in order; that of a damaged entry may be no text."""
    query = f"SELECT name FROM sqlite_master WHERE {condition} AND typeof(name) = 'text' ORDER BY name"
    return [row[0] for row in database.execute(query)]


def columns(database: sqlite3.Connection, table: str) -> frozenset[str]:
    """Return the column names of ``table``; none when a view refers to tables that are gone."""
    quoted = table.replace('"', '""')
    try:
        return frozenset(row[1] for row in database.execute(f'PRAGMA table_info("{quoted}")'))
    except sqlite3.OperationalError:
        return frozenset()


@contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite on a file of the user's into what they should know and do about it."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite quotes damaged names in its messages
        raise PastaError(f"{path} is a damaged SQLite database", "export or copy it again") from error
    except sqlite3.Error as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            message = f"{path} is being written by another program ({text})"
            raise PastaError(message, "wait until it is done, or import a copy") from error
        if "malformed" in text or "not a database" in text:
            message = f"{path} is a damaged SQLite database ({text})"
            raise PastaError(message, "export or copy it again") from error
        raise PastaError(f"cannot read the database {path}: {text}") from error
