"""Modules are untrusted: whatever is changed in one, instrumenting it ends, with a module or with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_generator import Generator
from spirv_harness import compile_source, native

pytestmark = pytest.mark.usefixtures("compiler")

DAMAGE = """
import sys
import numpy as np
sys.path.insert(0, {here!r})
from spirv_harness import native
module = np.fromfile({path!r}, np.uint32)
rng = np.random.default_rng({seed})
instrument = native().instrument
for round in range({rounds}):
    words = module.copy()
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(0, len(words)))
        match rng.integers(0, 6):
            case 0: words[at] = rng.integers(0, 1 << 32)
            case 1: words[at] = rng.integers(0, 400)
            case 2: words[at] ^= np.uint32(1 << int(rng.integers(0, 32)))
            case 3: words[at] = words[int(rng.integers(0, len(words)))]
            case 4: words = np.delete(words, at)
            case 5: words = words[:at] if at > 5 else words
    instrument(words.tobytes(), trace=bool(round & 1), extents=bool(round & 2))
print("survived")
"""


@pytest.mark.parametrize("seed", range(4))
def test_damaged_modules(seed: int, tmp_path: Path) -> None:
    module = tmp_path / "module.spv"
    module.write_bytes(compile_source(Generator(seed).kernel()))
    here = str(Path(__file__).parent)
    code = DAMAGE.format(here=here, path=str(module), seed=seed, rounds=400)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert done.stdout == "survived\n", (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize("data", [b"", b"\x03\x02#\x07", b"\0" * 20, b"\xff" * 400, b"\x03\x02#\x07" * 100])
def test_what_is_no_module_is_refused(data: bytes) -> None:
    words, plans, _, error = native().instrument(data)
    assert error
    assert words == b""
    assert plans == []


def test_every_prefix_of_a_module_ends_in_a_reason_or_a_module() -> None:
    module = compile_source("kernel void k(global int *p, int n) { for (int i = 0; i < n; ++i) p[i] += i; }")
    for length in range(0, len(module), 4):
        words, _, skipped, error = native().instrument(module[:length])
        assert error or words or skipped


def test_a_function_that_calls_itself_is_refused() -> None:
    source = """
    int down(global int *p, int n) { return n ? p[n] + 1 : 0; }
    kernel void k(global int *p) { p[0] = down(p, 3); }"""
    module = np.frombuffer(compile_source(source), np.uint32).copy()
    # Turn the kernel's call of `down` into one of its own body, and of `down` into itself, by the ids of functions.
    at, functions, calls = 5, [], []
    while at < len(module):
        opcode, length = module[at] & 0xFFFF, module[at] >> 16
        if opcode == 54:
            functions.append(module[at + 2])
        if opcode == 57:
            calls.append(at + 3)
        at += int(length)
    for call in calls:
        for function in functions:
            changed = module.copy()
            changed[call] = function
            words, _, skipped, error = native().instrument(changed.tobytes())
            assert words or error or skipped
