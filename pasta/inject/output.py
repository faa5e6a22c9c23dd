"""The output of a recording: its name, what may be overwritten, what is left to seal."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pasta.errors import PastaError
from pasta.program import program_name
from pasta.shard_lock import is_live

#: Left to the injected process, where ranks and environments differ.
_PER_PROCESS = re.compile(r"%(p|r|l|q\{)")


def default_name(command: Sequence[str], pid: int) -> str:
    """Return the default output for ``command``: the script's or program's name and the target's pid."""
    stem = program_name(command).removesuffix(".py") or "pasta"
    return f"{stem}-{pid}.pasta"


def is_per_process(pattern: str) -> bool:
    """Tell whether each process of the recording expands ``pattern`` for itself (%p, %r, %l, %q{})."""
    return _PER_PROCESS.search(pattern.replace("%%", "")) is not None


def expand_early(pattern: str) -> str:
    """Add ``.pasta`` where there is no suffix; expand %n (lowest free number), and %h where no process has to."""
    if not Path(pattern).suffix:
        pattern += ".pasta"
    if not is_per_process(pattern):
        pattern = re.sub(r"%%|%h", lambda m: "%%" if m[0] == "%%" else socket.gethostname().replace("%", "%%"), pattern)
    if re.search(r"%n", pattern.replace("%%", "")):
        number = 1
        while os.path.exists(_literal(_replace_n(pattern, number))):
            number += 1
        pattern = _replace_n(pattern, number)
    return pattern


def _replace_n(pattern: str, number: int) -> str:
    return re.sub(r"%%|%n", lambda m: m[0] if m[0] == "%%" else str(number), pattern)


def _literal(pattern: str) -> str:
    return pattern.replace("%%", "%")


def claim(pattern: str, force: bool, record: Mapping[str, object], recording: str) -> Path | None:
    """Create the output directory of a recording with one output, or return None when processes name their own.

    Refuses what is there unless ``force``. ``record`` becomes ``recording.json``; it is what a trace still
    tells of its origin when the launcher is killed. Raises ``PastaError`` (exit code 125).
    """
    if is_per_process(pattern):
        return None
    path = Path(_literal(pattern)).absolute()
    if path.exists() or path.is_symlink():
        if not force:
            raise PastaError(
                f"{path} already exists", "pass --force-overwrite or another --output", exit_code=125
            )
        _remove_trace(path)
    try:
        path.mkdir()
        (path / "recording.id").write_text(recording)
        write_record(path, record)
    except OSError as error:
        raise PastaError(f"cannot create {path}: {error.strerror}", "pass another --output", exit_code=125) from None
    return path


def write_record(directory: Path, record: Mapping[str, object]) -> None:
    """Write ``recording.json``, unless the directory has one."""
    import json

    path = directory / "recording.json"
    if not path.exists():
        path.write_text(json.dumps(record, indent=1))


def _remove_trace(path: Path) -> None:
    """Remove an old output, but never a directory that is not a trace."""
    if path.is_dir() and not path.is_symlink():
        known = any(path.glob("*.pastashard")) or any((path / n).exists() for n in ("recording.id", "manifest.json"))
        if not known and any(path.iterdir()):
            raise PastaError(
                f"{path} is a directory that is not a trace", "pass another --output", exit_code=125
            )
        shutil.rmtree(path)
    else:
        path.unlink()


def noted_outputs(registry: Path) -> list[Path]:
    """Return the output directories that the recording's processes created, each once."""
    return sorted({Path(note.read_text()) for note in registry.iterdir()})


def wait_for_writers(directory: Path, seconds: float) -> list[str]:
    """Wait until no process writes into ``directory`` any more, at most ``seconds``; return shards still held.

    A writer holds a lock on its shard for as long as it lives; a program may end before its children do.
    """
    deadline = time.monotonic() + seconds
    while True:
        held = [shard.name for shard in sorted(directory.glob("*.pastashard")) if is_live(shard)]
        if not held or time.monotonic() > deadline:
            return held
        time.sleep(0.05)
