"""Compiled kernels: which line an instruction comes from, what a function needs, and sealing that asks for both.

lines_sm90.cubin is lines.cu, compiled with ``nvcc -lineinfo -cubin -arch=sm_90``. Where the loads and stores of its
kernels stand in the code was read from nvdisasm's listing; their lines are those of the source text.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from shard_encoder import ShardEncoder

from pasta.trace import Trace, binaries, seal
from pasta.trace.binaries import disassemble
from pasta.trace.cubin import Cubin, CubinError, Place

HERE = Path(__file__).parent
SOURCE = (HERE / "lines.cu").read_text().splitlines()
CUBIN = HERE / "lines_sm90.cubin"
COPY, TWICE = "copy", "_Z5twicePfPKfi"


def line_of(remark: str) -> int:
    """Return the number of the source line that ends with ``remark``."""
    (number,) = [i for i, text in enumerate(SOURCE, 1) if text.endswith(f"// {remark}")]
    return number


@pytest.fixture(scope="module")
def cubin() -> Cubin:
    return Cubin(CUBIN.read_bytes())


def places(cubin: Cubin, function: str) -> dict[int, Place | None]:
    return {pc: cubin.place(function, pc) for pc in range(0, cubin.functions[function].size, 16)}


def test_lines_of_loads_and_stores(cubin: Cubin) -> None:
    file = "/tmp/kernels/lines.cu"
    both = Place(file, line_of("both of copy"))
    assert cubin.place(COPY, 0x90) == cubin.place(COPY, 0xB0) == both  # LDG.E, STG.E
    assert cubin.place(TWICE, 0x90) == Place(file, line_of("the load of twice"), "_Z6loadedPKfi")  # LDG.E
    assert cubin.place(TWICE, 0x100) == Place(file, 3, "_Z6scaledff")  # FADD, inlined twice over
    assert cubin.place(TWICE, 0x110) == Place(file, line_of("the call of loaded"))  # STS
    assert cubin.place(TWICE, 0x1B0) == Place(file, line_of("the store of twice"))  # STG.E


def test_outside_of_functions_there_is_no_place(cubin: Cubin) -> None:
    assert cubin.place(COPY, cubin.functions[COPY].size) is None
    assert cubin.place(COPY, -16) is None
    assert cubin.place("nobody", 0) is None


def test_what_functions_need(cubin: Cubin) -> None:
    """As ``ptxas -v`` said: 10 registers each, 256 bytes of shared memory, no stack."""
    needs = {f.name: (f.registers, f.shared_bytes, f.local_bytes) for f in cubin.functions.values()}
    assert needs == {COPY: (10, 0, 0), TWICE: (10, 256, 0)}


def test_damaged_cubins_are_refused_or_have_fewer_lines() -> None:
    data = CUBIN.read_bytes()
    for bad in (b"", b"\x7fELF", data[:100], Path("/bin/true").read_bytes()):
        with pytest.raises(CubinError):
            Cubin(bad)
    for at in range(0, len(data), 7):  # any byte wrong
        try:
            damaged = Cubin(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        except CubinError:
            continue
        for function in damaged.functions.values():
            damaged.place(function.name, 0x90)


@pytest.mark.parametrize("architecture", ["75", "80", "90", "100", "120"])
@pytest.mark.parametrize("options", [(), ("-G",)], ids=["lineinfo", "debug"])
def test_cubins_compiled_here(tmp_path: Path, architecture: str, options: tuple[str, ...]) -> None:
    """The lines are among those of the source, the needs are what ptxas says, and nvdisasm agrees where it is."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    path = tmp_path / "lines.cubin"
    arch = f"-arch=sm_{architecture}"
    command = [nvcc, "-lineinfo" if not options else options[0], "-Xptxas", "-v", "-cubin", arch, "lines.cu"]
    result = subprocess.run([*command, "-o", path], cwd=HERE, capture_output=True, text=True)
    if result.returncode != 0 and "Unsupported gpu architecture" in result.stderr:
        pytest.skip(f"this nvcc does not know sm_{architecture}")
    assert result.returncode == 0, result.stderr
    compiled = Cubin(path.read_bytes())
    told = r"Function properties for (\S+)\s+(\d+) bytes stack[^\n]*\n[^\n]*Used (\d+) registers([^\n]*)"
    said = re.findall(told, result.stderr)
    assert {COPY, TWICE} <= {name for name, *_ in said}
    for name, stack, registers, more in said:
        function = compiled.functions[name]
        shared = re.search(r"(\d+) bytes smem", more)
        assert (function.registers, function.local_bytes) == (int(registers), int(stack))
        assert function.shared_bytes == (int(shared[1]) if shared else 0)
    lines = {place.line for place in places(compiled, COPY).values() if place is not None}
    assert line_of("both of copy") in lines
    assert lines <= {8, 9, 10, 11, 12}
    lines = {place.line for place in places(compiled, TWICE).values() if place is not None}
    load = "the load of twice" if not options else "the call of loaded"  # without optimisation nothing is inlined
    assert {line_of("the store of twice"), line_of(load)} <= lines
    nvdisasm = binaries._nvdisasm()
    if nvdisasm is not None:
        assert listed_lines(nvdisasm, path) == {
            name: {pc: place.line for pc, place in places(compiled, name).items() if place is not None}
            for name in compiled.functions
        }


def test_what_comes_from_a_header_of_cuda_is_the_line_that_uses_it(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "count.cu").write_text('extern "C" __global__ void count(int *bins) {\n  atomicAdd(bins, 1);\n}\n')
    command = [nvcc, "-lineinfo", "-cubin", "-arch=sm_90", "count.cu", "-o", "count.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = {place for place in places(Cubin((tmp_path / "count.cubin").read_bytes()), "count").values() if place}
    assert {(place.file.rsplit("/")[-1], place.line) for place in found} <= {("count.cu", n) for n in (1, 2, 3)}


def listed_lines(nvdisasm: str, path: Path) -> dict[str, dict[int, int]]:
    """Return the line of each instruction as nvdisasm lists it: the innermost where functions were inlined."""
    listing = subprocess.run([nvdisasm, "-c", "-gi", path], capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[int, int]] = {}
    line, fresh = None, True
    for text in listing.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\S+?),", text):
            function, line = found.setdefault(section[1], {}), None
        elif told := re.match(r'\s*//## File ".*?", line (\d+)', text):
            line, fresh = (int(told[1]) if fresh else line), False
        elif instruction := re.match(r"\s*/\*([0-9a-f]{4,})\*/", text):
            fresh = True
            if line is not None:
                function[int(instruction[1], 16)] = line
    return found


def test_disassembly_names_instructions(cubin: Cubin) -> None:
    if binaries._nvdisasm() is None:
        pytest.skip("no nvdisasm")
    texts = disassemble(CUBIN, cubin, [TWICE, "nobody"], 60)
    assert texts[TWICE, 0x90] == "LDG.E R2, desc[UR6][R2.64]"
    assert texts[TWICE, 0x1B0] == "STG.E desc[UR6][R2.64], R7"
    assert {symbol for symbol, _ in texts} == {TWICE}
    both = disassemble(CUBIN, cubin, [TWICE, COPY], 60)
    assert both.items() >= texts.items()
    assert both[COPY, 0x90] == "LDG.E R3, desc[UR4][R2.64]"
    assert disassemble(CUBIN, cubin, [TWICE], 0) == {}


# -- Sealing -----------------------------------------------------------------------------------------------------------


def record(directory: Path, lines: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> None:
    ended = {"how_ended": "exit", "start_ns": 1}
    ShardEncoder().add("process", [ended]).add("kernel", kernels).add("line", lines).write(directory, 7)


def site(site_id: int, pc: int, symbol: str = TWICE, binary: str = "cubin-aa", **more: Any) -> dict[str, Any]:
    return {"site_id": site_id, "kernel": "twice", "pc": pc, "symbol": symbol, "binary": binary, **more}


def test_sealing_says_where_instructions_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_nvdisasm", lambda: None)
    directory = tmp_path / "t.pasta"
    sites = [site(1, 0x90), site(2, 0xB0, COPY), site(3, 0x9000), site(4, 0, "other"), {"site_id": 5, "file": "a.cl"}]
    kernels = [{"launch_id": 1, "name": "twice", "mangled": TWICE}, {"launch_id": 2, "name": COPY}]
    record(directory, sites, [*kernels, {"launch_id": 3, "name": "unmeasured"}])
    shutil.copy(CUBIN, directory / "cubin-aa")
    seal.seal(directory)
    assert directory.is_file()
    with Trace.open(directory) as trace:
        rows = trace.line.sort("site_id").select("site_id", "file", "line", "function").collect().rows()
        assert rows[0] == (1, "/tmp/kernels/lines.cu", line_of("the load of twice"), "loaded(float const*, int)")
        assert rows[1] == (2, "/tmp/kernels/lines.cu", line_of("both of copy"), None)
        assert rows[2:] == [(3, None, None, None), (4, None, None, None), (5, "a.cl", None, None)]
        columns = ("launch_id", "registers", "static_shared_bytes", "local_bytes")
        needs = trace.kernel.sort("launch_id").select(columns).collect().rows()
        assert needs == [(1, 10, 256, 0), (2, 10, 0, 0), (3, None, None, None)]
        assert "loss" not in trace.present
        assert trace.manifest["instructions"] == {"global": 2, "shared": 1}  # kernels that have them


def test_each_binary_is_disassembled_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for nvdisasm says which file it was given; the first takes longest."""
    program = tmp_path / "nvdisasm"
    program.write_text(
        f"""#!/bin/sh
for file; do :; done
case $file in *a0) sleep 0.3;; esac
printf '\\t.section\\t.text.%s,"ax"\\n        /*0090*/  FROM %s ;\\n' {TWICE} "${{file##*/}}"
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(binaries, "_nvdisasm", lambda: str(program))
    directory = tmp_path / "t.pasta"
    names = [f"cubin-a{i}" for i in range(6)]
    record(directory, [site(i, 0x90, binary=name) for i, name in enumerate(names)], [])
    for name in names:
        shutil.copy(CUBIN, directory / name)
    seal.seal(directory)
    with Trace.open(directory) as trace:
        texts = trace.line.sort("site_id").select("text").collect()["text"].to_list()
    assert texts == [f"FROM {name}" for name in names]


def test_a_missing_or_strange_binary_is_a_loss(tmp_path: Path) -> None:
    directory = tmp_path / "t.pasta"
    record(directory, [site(1, 0x90), site(2, 0x90, binary="../cubin-aa"), site(3, 0x90, binary="cubin-bb")], [])
    shutil.copy(CUBIN, tmp_path / "cubin-aa")
    (directory / "cubin-bb").write_bytes(b"junk")
    seal.seal(directory)
    with Trace.open(directory) as trace:
        assert trace.line.select("file").collect()["file"].to_list() == [None] * 3
        causes = trace.loss.select("cause").collect()["cause"].to_list()
        assert sorted(cause.rpartition(": ")[2] for cause in causes) == [
            "Magic number does not match", "No such file or directory", "its name is none of ours",
        ]  # fmt: skip


# -- Kinds of instructions ---------------------------------------------------------------------------------------------

#: Mnemonics of the kinds; what begins so and is not here accesses no memory (REDUX, LDGDEPBAR, TXQ, LDC).
MNEMONICS = {
    "global": {"LDG", "STG", "ATOMG", "RED", "REDG"}, "generic": {"LD", "ST", "ATOM"}, "memcpy_async": {"LDGSTS"},
    "shared": {"LDS", "STS", "ATOMS"}, "local": {"LDL", "STL"}, "matrix": {"LDSM", "STSM"}, "bulk_copy": {"UBLKCP"},
    "bulk_reduction": {"UBLKRED"}, "tma_load": {"UTMALDG"}, "tma_store": {"UTMASTG"}, "tma_reduction": {"UTMAREDG"},
    "async_store": {"STAS"}, "async_reduction": {"REDAS"}, "multimem": {"LDGMC"},
    "texture": {"TEX", "TLD", "TLD4", "TXD"}, "surface": {"SULD", "SUST", "SURED"},
}  # fmt: skip


def test_kinds_of_memory_instructions(cubin: Cubin) -> None:
    kinds = {function.name: function.kinds for function in cubin.functions.values()}
    assert kinds == {COPY: {"global"}, TWICE: {"global", "shared"}}


@pytest.mark.parametrize("architecture", ["75", "80", "86", "89", "90", "100", "120"])
def test_each_kind_is_found(tmp_path: Path, architecture: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    path = tmp_path / "kinds.cubin"
    command = [nvcc, "-cubin", "-std=c++17", f"-arch=sm_{architecture}", "kinds.cu", "-o", path]
    result = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    if result.returncode != 0 and "Unsupported gpu architecture" in result.stderr:
        pytest.skip(f"this nvcc does not know sm_{architecture}")
    assert result.returncode == 0, result.stderr
    functions = Cubin(path.read_bytes()).functions
    for name, function in functions.items():
        kind = re.sub(r"(_atomic|_reduction)?_kind", "", name) if "global" in name or "shared" in name else name[:-5]
        assert function.kinds >= ({kind} if name != "nothing" else set()), name
    assert functions["nothing"].kinds == set()
    assert len(functions) == (10 if architecture == "75" else 11 if int(architecture) < 90 else 20)
    nvdisasm = binaries._nvdisasm()
    if nvdisasm is None:
        return
    listing = subprocess.run([nvdisasm, "-c", path], capture_output=True, text=True, check=True).stdout
    for section in re.split(r"\n\s*\.section\s+\.text\.", listing)[1:]:
        name = section.partition(",")[0]
        told = set(re.findall(r"\*/\s+(?:@!?U?P\w+ )?\s*([A-Z0-9]+)", section))
        assert functions[name].kinds == {kind for kind, names in MNEMONICS.items() if names & told}, name
