"""Say where measured instructions come from, when a recording is sealed: source lines, registers, instruction text.

The session leaves the binaries of measured kernels beside the shards as ``cubin-HASH``; a row of `line` names its
binary, the kernel's symbol in it and the offset of the instruction. The sealed trace has the answers and not the
binaries. Nothing here fails: what cannot be read stays unknown, and is a loss.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl

from pasta.trace.cubin import Cubin, CubinError, Function

_SYMBOL = pl.coalesce("mangled", "name")
_NAME = re.compile(r"cubin-[0-9a-f]{1,40}", re.ASCII)
_MAX_BYTES = 1 << 30
#: How long nvdisasm may take for a whole recording.
_DISASSEMBLY_SECONDS = 60.0
_SECTION = re.compile(r'\s*\.section\s+\.text\.([^,"]+),')
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;")


class Binaries:
    """The binaries in the directory of a recording; ``losses`` are rows of `loss` for those that cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cubins: dict[str, Cubin | None] = {}
        self._seen: set[str] = set()
        self.losses: list[dict[str, Any]] = []

    def fill_lines(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Return rows of `line` with `file`, `line`, `function` and `text` where their binary tells and they are null.

        Where the binary has no line for it, only `text` is filled, and only where nvdisasm is installed.
        """
        open_ = pl.col("file").is_null() & pl.col("binary").is_not_null() & pl.col("symbol").is_not_null()
        wanted = lines.filter(open_ & pl.col("pc").is_not_null()).select("pid", "site_id", "binary", "symbol", "pc")
        if wanted.is_empty():
            return lines
        groups = {str(binary): rows for (binary,), rows in wanted.group_by("binary", maintain_order=True)}
        cubins = {binary: cubin for binary in groups if (cubin := self._cubin(binary)) is not None}
        deadline = time.monotonic() + _DISASSEMBLY_SECONDS

        def disassembled(binary: str) -> dict[tuple[str, int], str]:
            symbols = groups[binary]["symbol"].unique(maintain_order=True)
            return disassemble(self._directory / binary, cubins[binary], symbols, deadline - time.monotonic())

        found = []
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # libraries have a binary for each kernel or so
            for (binary, cubin), texts in zip(cubins.items(), pool.map(disassembled, cubins), strict=True):
                for pid, site_id, _, symbol, pc in groups[binary].iter_rows():
                    place = cubin.place(symbol, pc)
                    where = (None, None, None) if place is None else (place.file, place.line, _readable(place.function))
                    found.append((pid, site_id, *where, texts.get((symbol, pc))))
        schema = {name: lines.schema[name] for name in ("pid", "site_id", "file", "line", "function", "text")}
        answers = pl.DataFrame(found, schema, orient="row")
        filled = lines.join(answers, on=["pid", "site_id"], how="left", maintain_order="left", suffix="_found")
        return _coalesce(filled, ("file", "line", "function", "text")).select(lines.columns)

    def fill_kernels(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Return rows of `kernel` with `registers`, `static_shared_bytes` and `local_bytes` where a binary has them.

        A name that the binaries compile differently stays unknown.
        """
        if not self._functions:
            return kernels
        names = ("registers", "static_shared_bytes", "local_bytes")
        rows = [(f.name, f.registers, f.shared_bytes, f.local_bytes) for f in self._functions]
        columns = ["_symbol", *names]
        schema = pl.Schema({"_symbol": pl.String(), **kernels.schema})
        facts = pl.DataFrame(rows, {name: schema[name] for name in columns}, orient="row")
        facts = facts.unique().unique("_symbol", keep="none")
        joined = kernels.with_columns(_symbol=_SYMBOL).join(
            facts, on="_symbol", how="left", maintain_order="left", suffix="_found"
        )
        self._seen.update(joined["_symbol"].drop_nulls().unique())
        return _coalesce(joined, names).select(kernels.columns)

    def kinds(self) -> dict[str, int]:
        """Return the kinds of memory instructions in kernels that `fill_kernels` saw, and how many have each."""
        found = {(kind, f.name) for f in self._functions if f.name in self._seen for kind in f.kinds}
        return dict(sorted(Counter(kind for kind, _ in found).items()))

    @cached_property
    def _functions(self) -> list[Function]:
        cubins = [self._cubin(path.name) for path in sorted(self._directory.glob("cubin-*"))]
        return [function for cubin in cubins if cubin is not None for function in cubin.functions.values()]

    def _cubin(self, name: str) -> Cubin | None:
        if name not in self._cubins:
            try:
                self._cubins[name] = self._read(name)
            except (CubinError, OSError) as error:
                self._cubins[name] = None
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                self.losses.append(
                    {"source": "seal", "table": "line", "cause": f"the binary of a kernel cannot be read: {why}"}
                )
        return self._cubins[name]

    def _read(self, name: str) -> Cubin:
        path = self._directory / name
        if not _NAME.fullmatch(name) or path.is_symlink():
            raise CubinError("its name is none of ours")
        if path.stat().st_size > _MAX_BYTES:
            raise CubinError("it is too large")
        return Cubin(path.read_bytes())


def disassemble(path: Path, cubin: Cubin, symbols: Iterable[str], seconds: float) -> dict[tuple[str, int], str]:
    """Return the instructions of functions of the cubin in ``path``, by symbol and offset.

    None without nvdisasm, or when it takes longer than ``seconds``.
    """
    program = _nvdisasm()
    indices = [str(cubin.functions[symbol].index) for symbol in symbols if symbol in cubin.functions]
    if program is None or not indices or seconds <= 0:
        return {}
    command = [program, "-c", "-fun", ",".join(indices), str(path)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return {}
    texts: dict[tuple[str, int], str] = {}
    function = ""
    for line in result.stdout.splitlines():
        if section := _SECTION.match(line):
            function = section[1]
        elif instruction := _INSTRUCTION.match(line):
            texts[function, int(instruction[1], 16)] = re.sub(r"\s+", " ", instruction[2])
    return texts


@cache
def _nvdisasm() -> str | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [os.environ.get("PATH", os.defpath), *(f"{home}/bin" for home in homes if home)]
    return shutil.which("nvdisasm", path=os.pathsep.join(folders))


def _coalesce(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    return frame.with_columns(pl.coalesce(name, f"{name}_found").alias(name) for name in names)


@cache
def _readable(symbol: str | None) -> str | None:
    if symbol is None:
        return None
    try:
        native = importlib.import_module("pasta._native")
    except ImportError:  # reading traces needs no native part
        return symbol
    return str(native.demangle(symbol))
