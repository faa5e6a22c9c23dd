"""Which format a file has, by its content; and, by name, what pasta knows but cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from pasta.errors import PastaError
from pasta.importers.base import Head, Importer, Kind
from pasta.importers.packed import Source, scratch

#: Modules with importers (``IMPORTERS``) and known foreign formats (``REFUSALS``); the first that sniffs a file
#: takes it, so a specific format stands before a general one.
MODULES: tuple[str, ...] = (
    *("refused", "nsys", "rocm.rocpd", "rocm.rpd", "rocm.rocprofv3_json", "rocm.rocprofv3_csv", "xplane"),
    *("kineto", "tensorboard_memory", "chrome", "pftrace"),
)

#: A directory with more files than this is not a profile.
MAX_FILES = 10_000


@dataclass(frozen=True)
class Refusal:
    """A format that is recognised by content and cannot be imported: what it is and what to do instead."""

    label: str
    sniff: Callable[[Head], bool]
    fix: str


_NSYS_EXPORT = "nsys export --type sqlite FILE, then import the .sqlite"

#: Names of files that no library but the vendor's reads. Only for the message: content decided before.
_VENDOR_FILES = {
    ".nsys-rep": ("an Nsight Systems report, a private format", _NSYS_EXPORT),
    ".qdrep": ("an Nsight Systems report, a private format", _NSYS_EXPORT),
    ".ncu-rep": (
        "an Nsight Compute report, a private format",
        "record the program with pasta record --memory, or read it with ncu --import FILE --csv",
    ),
}


@cache
def importers() -> tuple[Importer, ...]:
    """Return all importers in the order in which they are asked."""
    return tuple(importer for name in MODULES for importer in getattr(_module(name), "IMPORTERS", ()))


@cache
def refusals() -> tuple[Refusal, ...]:
    """Return all formats that are refused by name."""
    return tuple(refusal for name in MODULES for refusal in getattr(_module(name), "REFUSALS", ()))


def importer_of(kind: Kind) -> Importer:
    """Return the importer of ``kind``."""
    return next(importer for importer in importers() if importer.kind is kind)


def detect(path: Path | str) -> Kind:
    """Return the format of the file ``path``; raises ``PastaError`` when pasta cannot import it."""
    path = Path(path)
    with scratch() as folder:
        return sniff(Source.of(path, folder))


def sniff(source: Source) -> Kind:
    """Return the format of ``source``; raises ``PastaError`` when pasta cannot import it."""
    start = source.head()
    head = Head(start, source.sqlite_tables(start))
    for refusal in refusals():
        if refusal.sniff(head):
            raise PastaError(f"{source.path} is {refusal.label}", refusal.fix)
    for importer in importers():
        if importer.sniff(head):
            return importer.kind
    if not start:
        raise PastaError(f"{source.path} is empty")
    for suffix, (label, fix) in _VENDOR_FILES.items():
        if source.path.name.endswith(suffix):
            raise PastaError(f"{source.path} is {label}", fix)
    known = ", ".join(kind.value for kind in Kind)
    raise PastaError(f"cannot tell what {source.path} is", f"name its format with --from ({known})")


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the files below ``folder`` in order of name, without hidden ones and without following links out of it."""
    count = 0
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.is_symlink() or not path.is_file():
            continue
        count += 1
        if count > MAX_FILES:
            raise PastaError(f"{folder} holds more than {MAX_FILES} files", "name the files to import")
        yield path


def _module(name: str) -> object:
    return import_module(f"pasta.importers.{name}")
