"""Where results go: standard output or a file, in the form that suits it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pasta.cli.options import Format
from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.report import View
    from pasta.tools.result import Result

_BY_SUFFIX = {
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".json": Format.JSON,
    ".md": Format.MARKDOWN,
    ".txt": Format.TABLE,
}


def write_results(
    results: Result | Sequence[Result], format: Format | None, output: str | None = None, view: View | None = None
) -> None:
    """Write results to the file ``output`` or, where it is None or ``-``, to standard output."""
    from pasta import report

    chosen = format or _default_format(output)
    with open_output(output) as out:
        report.write(results, out, chosen.value, view or report.View())


@contextmanager
def open_output(output: str | None) -> Iterator[TextIO]:
    """Open ``output`` for text. A file is replaced when the block is left, and stays as it was on an exception."""
    if output in (None, "-"):
        yield sys.stdout
        return
    path = Path(output)
    if path.exists() and not path.is_file():
        # A pipe or a device, such as /dev/null, is written to, never replaced.
        with _writing(path), path.open("w", encoding="utf-8") as stream:
            yield stream
        return
    with _writing(path):
        number, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "w", encoding="utf-8") as stream:
            yield stream
        os.chmod(draft, 0o666 & ~_umask())
        with _writing(path):
            os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def view_of(
    sort: str | None = None, fields: str | None = None, limit: int | None = None, percent_limit: float | None = None
) -> View:
    """Return the view that these options ask for; lists are separated by commas."""
    from pasta.report import View

    return View(_names(sort), _names(fields), limit, percent_limit)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in (text or "").split(","))))


def _default_format(output: str | None) -> Format:
    if output in (None, "-"):
        return Format.TABLE
    return _BY_SUFFIX.get(Path(output).suffix.lower(), Format.CSV)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PastaError(f"cannot write {path}: {error.strerror or error}", "choose another place with -o") from error


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
