"""Read NVIDIA's compiled kernels (cubins): functions with their resources, source lines, kinds of memory instructions.

A cubin is an ELF file. ``nvcc -lineinfo`` adds a DWARF line table with two extended operations of NVIDIA's, which say
into which other row of the table an instruction was inlined, and from which function. Everything here is pure: bytes
in, values out. A cubin is input like any other: what is damaged raises `CubinError` or has no lines.
"""

from __future__ import annotations

import bisect
import io
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

#: Attributes of `.nv.info`: each value belongs to one function.
_REGISTERS, _FRAME = 0x2F, 0x11
#: Shared memory that the system keeps for itself at the start of a block's, where the cubin has the symbol for it.
_RESERVED_SHARED, _RESERVED_SYMBOL = 1024, ".nv.reservedSmem.offset0"
#: Opcodes of the line table that NVIDIA added: context (a row, from 1; 0 is none) and the function's name.
_INLINED_CALL = 0x90
#: Kinds of instructions that access memory, by the nine bits that tell instructions apart from sm_75 to sm_120: found
#: by compiling one kernel of each kind for each, and comparing with nvdisasm. Generic ones may go to any space.
_KINDS = {
    0x181: "global", 0x186: "global", 0x1A8: "global", 0x1A9: "global", 0x18E: "global",
    0x180: "generic", 0x185: "generic", 0x18A: "generic",
    0x1AE: "memcpy_async", 0x1BA: "bulk_copy", 0x1BB: "bulk_reduction",
    0x1B4: "tma_load", 0x1B5: "tma_store", 0x1B6: "tma_reduction", 0x1A5: "multimem", 0x1A6: "multimem",
    0x184: "shared", 0x188: "shared", 0x18C: "shared", 0x18D: "shared", 0x03B: "matrix", 0x044: "matrix",
    0x1BD: "async_store", 0x1BE: "async_reduction", 0x183: "local", 0x187: "local",
    0x160: "texture", 0x163: "texture", 0x166: "texture", 0x16C: "texture",
    0x199: "surface", 0x19D: "surface", 0x19F: "surface",
}  # fmt: skip
_STANDARD = {"copy": 1, "advance_pc": 2, "advance_line": 3, "set_file": 4, "const_add_pc": 8, "fixed_advance_pc": 9}


class CubinError(ValueError):
    """The bytes are no cubin that can be read."""


@dataclass(frozen=True)
class Function:
    """A function as compiled: code and memory in bytes, None where the cubin does not tell; ``index`` of its symbol.

    ``kinds`` of instructions that access memory are in its own code, be they run or not.
    """

    name: str
    index: int
    size: int
    registers: int | None = None
    shared_bytes: int = 0
    local_bytes: int | None = None
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Place:
    """A place in the source; ``function`` is the (mangled) one that was inlined there, None in the kernel itself."""

    file: str
    line: int
    function: str | None = None


_TOOLKIT = re.compile(r"/(?:cuda|nvidia)[^/]*/(?:.*/)?include/")

#: Offsets in a function, rising, and the place from each of them on.
_Places = tuple[list[int], list[Place]]
_NOWHERE: _Places = ([], [])
#: Offsets in the line table at which an address stands: the function that it is of, and the offset in that.
_Sequences = dict[int, tuple[str, int]]


def _of_the_program(sequence: list[tuple[Place, int]]) -> Place:
    """Return the last place or, where that is in a header of CUDA (atomicAdd is), the program's that it came from."""
    place, context = sequence[-1]
    while _TOOLKIT.search(place.file) and 0 < context <= len(sequence):
        into, outer = sequence[context - 1]
        if outer >= context:  # a row before this one: else the table is damaged
            break
        place, context = into, outer
    return place


class Cubin:
    """The functions of a cubin, by (mangled) name, and their line tables."""

    def __init__(self, data: bytes) -> None:
        """Read ``data``; raises `CubinError`."""
        try:
            elf = ELFFile(io.BytesIO(data))
            if elf["e_machine"] != "EM_CUDA":
                raise CubinError("an ELF file of another machine")
            self.functions = _functions(elf)
            self._lines = _section(elf, ".debug_line"), _section(elf, ".debug_str"), _relocations(elf)
        except CubinError:
            raise
        # pyelftools trusts its input: what is damaged may end in any of these.
        except (ELFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
            raise CubinError(f"damaged: {error}") from error

    def place(self, function: str, pc: int) -> Place | None:
        """Return where the instruction at ``pc`` bytes into ``function`` comes from; None when it is not known."""
        starts, places = self._places.get(function, _NOWHERE)
        size = self.functions[function].size if function in self.functions else 0
        at = bisect.bisect_right(starts, pc) - 1
        return places[at] if at >= 0 and pc < size else None

    @cached_property
    def _places(self) -> dict[str, _Places]:
        try:
            return _places(*self._lines, self.functions)
        except (CubinError, LookupError, struct.error):  # a damaged line table tells nothing
            return {}


def _functions(elf: ELFFile) -> dict[str, Function]:
    names: dict[int, str] = {}
    functions: dict[str, Function] = {}
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return functions
    sections = {section.name: section["sh_size"] for section in elf.iter_sections()}
    reserved = _RESERVED_SHARED if table.get_symbol_by_name(_RESERVED_SYMBOL) else 0
    for index, symbol in enumerate(table.iter_symbols()):
        if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(symbol["st_shndx"], int):
            names[index] = symbol.name
            shared = max(sections.get(f".nv.shared.{symbol.name}", reserved) - reserved, 0)
            code = elf.get_section(symbol["st_shndx"]).data()[symbol["st_value"] :][: symbol["st_size"]]
            functions[symbol.name] = Function(
                symbol.name, index, symbol["st_size"], shared_bytes=shared, kinds=_kinds(code)
            )
    for attribute, symbol_index, value in _attributes(_section(elf, ".nv.info")):
        name = names.get(symbol_index)
        if name is None:
            continue
        if attribute == _REGISTERS:
            functions[name] = replace(functions[name], registers=value)
        elif attribute == _FRAME:
            functions[name] = replace(functions[name], local_bytes=value)
    return functions


def _kinds(code: bytes) -> frozenset[str]:
    """Return the kinds of memory instructions in ``code``; an instruction has 16 bytes."""
    opcodes = np.unique(np.frombuffer(code, "<u8", len(code) // 16 * 2)[::2] & 0x1FF)
    return frozenset(_KINDS[opcode] for opcode in opcodes.tolist() if opcode in _KINDS)


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield attribute, symbol and value of the entries that are about a symbol.

    An entry is a format, an attribute and two bytes: its value, or (format 4) the length of what follows.
    """
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            if size == 8 and at + 8 <= len(data):
                yield (attribute, *struct.unpack_from("<II", data, at))
            at += size


def _section(elf: ELFFile, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    return b"" if section is None else bytes(section.data())


def _places(
    data: bytes, strings: bytes, sequences: _Sequences, functions: Mapping[str, Function]
) -> dict[str, _Places]:
    """Return for each function the offsets at which its place changes, rising, and the places."""
    found: dict[str, dict[int, Place]] = {}
    at = 0
    while at + 10 <= len(data):
        unit = _Unit(data, at, strings, sequences)
        at = unit.end
        for name, offset, place in unit.rows():
            if name in functions:
                found.setdefault(name, {})[offset] = place  # the last of several at one offset holds
    return {name: (sorted(rows), [rows[offset] for offset in sorted(rows)]) for name, rows in found.items()}


def _relocations(elf: ELFFile) -> _Sequences:
    """Return where addresses stand in `.debug_line`: the function that each means, and the offset in it."""
    found = {}
    for name in (".rela.debug_line", ".rel.debug_line"):
        section = elf.get_section_by_name(name)
        if section is None:
            continue
        symbols = elf.get_section(section["sh_link"])
        if not isinstance(section, RelocationSection) or not isinstance(symbols, SymbolTableSection):
            raise CubinError("addresses of a line table that name no symbols")
        for relocation in section.iter_relocations():
            addend = relocation["r_addend"] if name.startswith(".rela") else 0
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            found[relocation["r_offset"]] = (symbol.name.removeprefix(".text."), addend)
    return found


class _Unit:
    """One unit of `.debug_line`: DWARF 2 to 4, of 32 bits."""

    def __init__(self, data: bytes, start: int, strings: bytes, sequences: _Sequences) -> None:
        length, version, header = struct.unpack_from("<IHI", data, start)
        self.end = start + 4 + length
        if length >= 0xFFFFFFF0 or self.end > len(data):
            raise CubinError("a line table that is cut")
        self._data, self._strings, self._sequences = data, strings, sequences
        self._readable = 2 <= version <= 4
        if not self._readable:
            return
        at = start + 10
        self._step = data[at]
        at += 2 if version >= 4 else 1
        _, self._line_base, self._line_range, opcodes = struct.unpack_from("<BbBB", data, at)
        at += 4
        self._operands = (0, *data[at : at + opcodes - 1])
        if self._line_range == 0 or opcodes == 0:
            raise CubinError("a line table with no lines a step")
        at += opcodes - 1
        self._files = self._read_files(at)
        self._begin = start + 10 + header

    def _read_files(self, at: int) -> list[str]:
        directories = [""]
        while text := self._text(self._data, at):
            directories.append(text[0])
            at = text[1]
        at += 1
        files = [""]
        while text := self._text(self._data, at):
            name, at = text
            directory, at = self._uleb(at)
            _, at = self._uleb(at)  # time and size of the file: of no use
            _, at = self._uleb(at)
            inside = not name.startswith("/") and 0 < directory < len(directories)
            files.append(f"{directories[directory]}/{name}" if inside else name)
        return files

    @staticmethod
    def _text(data: bytes, at: int) -> tuple[str, int] | None:
        """Return the text at ``at`` and what follows it; None for the empty one."""
        end = data.find(b"\0", at)
        return None if end <= at else (data[at:end].decode(errors="replace"), end + 1)

    def _uleb(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
            if shift > 63:
                raise CubinError("a number that does not end")

    def _sleb(self, at: int) -> tuple[int, int]:
        value, end = self._uleb(at)
        bits = 7 * (end - at)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value, end

    def rows(self) -> Iterator[tuple[str, int, Place]]:
        """Run the unit's program; yield function, offset in it and place."""
        if not self._readable:
            return
        at = self._begin
        function, address, file, line, inlined, context = "", 0, 1, 1, None, 0
        sequence: list[tuple[Place, int]] = []  # the rows so far, each with the number of the row it was inlined into
        while at < self.end:
            opcode = self._data[at]
            at += 1
            emits = False
            if opcode >= len(self._operands):
                special = opcode - len(self._operands)
                address += special // self._line_range * self._step
                line += self._line_base + special % self._line_range
                emits = True
            elif opcode == 0:
                size, body = self._uleb(at)
                at = body + size
                kind = self._data[body] if size else 0
                if kind == 1:  # end of the sequence
                    function, address, file, line, inlined, context = "", 0, 1, 1, None, 0
                    sequence = []
                elif kind == 2:
                    function, address = self._sequences.get(body + 1, ("", 0))
                elif kind == _INLINED_CALL:
                    context, body = self._uleb(body + 1)
                    name, _ = self._uleb(body)
                    text = self._text(self._strings, name) if context else None
                    inlined = text[0] if text else None
            elif opcode == _STANDARD["copy"]:
                emits = True
            elif opcode == _STANDARD["advance_pc"]:
                step, at = self._uleb(at)
                address += step * self._step
            elif opcode == _STANDARD["advance_line"]:
                step, at = self._sleb(at)
                line += step
            elif opcode == _STANDARD["set_file"]:
                file, at = self._uleb(at)
            elif opcode == _STANDARD["const_add_pc"]:
                address += (255 - len(self._operands)) // self._line_range * self._step
            elif opcode == _STANDARD["fixed_advance_pc"]:
                address += struct.unpack_from("<H", self._data, at)[0]
                at += 2
            else:
                for _ in range(self._operands[opcode]):
                    _, at = self._uleb(at)
            if not emits:
                continue
            sequence.append((Place(self._files[file] if file < len(self._files) else "", line, inlined), context))
            place = _of_the_program(sequence)
            if function and place.file and 0 < place.line < 1 << 31:
                yield function, address, place
