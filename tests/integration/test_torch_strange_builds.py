"""Builds of torch that pasta does not know: it tries itself out, says what it lost, and the program goes on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from torch_runs import PROGRAMS, python, record

from pasta.trace import Trace

_COMPILER = shutil.which("c++")
pytestmark = pytest.mark.skipif(_COMPILER is None, reason="needs a C++ compiler")

#: What the import hook calls, around the loading of the libraries.
_PROGRAM = """
import ctypes, sys
pasta = ctypes.CDLL(None)
pasta.pasta_torch_importing()
ctypes.CDLL(sys.argv[1] + "/libc10.so", ctypes.RTLD_GLOBAL)
libtorch = ctypes.CDLL(sys.argv[1] + "/libtorch_cpu.so")
pasta.pasta_torch_imported(b"9.9.0")
libtorch.run_operator(b"fake::op", ctypes.c_int64(5))
print("goes on")
"""


def _record(tmp_path: Path, *defines: str) -> Trace:
    source = PROGRAMS / "fake_libtorch.cpp"
    library = tmp_path / "libtorch_cpu.so"
    command = [_COMPILER, "-std=c++17", "-shared", "-fPIC", *defines, source, "-o", library]
    subprocess.run([str(part) for part in command], check=True, timeout=120)
    shutil.copy(library, tmp_path / "libc10.so")
    result = record(tmp_path / "trace", *python(_PROGRAM, str(tmp_path)))
    assert (result.status, result.stdout, result.stderr) == (0, "goes on\n", "")
    return Trace.open(tmp_path / "trace")


def test_unknown_version_that_passes_the_self_test(tmp_path: Path) -> None:
    trace = _record(tmp_path)
    ops = trace.table("op").collect()
    # The sequence number is where it is in this RecordFunction, not where it is in a real one.
    assert ops.select("name", "sequence", "phase").rows() == [("fake::op", 5, "forward")]
    backends = trace.table("process").collect()["backends"].item()
    assert backends == "torch: 9.9.0, self-test passed, never verified with this version"


@pytest.mark.parametrize(
    ("define", "cause"),
    [
        ("-DNO_CALLBACKS", "it does not export _ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"),
        ("-DNEVER_CALLS", "the self-test failed in a child process"),
        ("-DOTHER_LAYOUT", "the self-test failed in a child process"),
        ("-DHANGS", "the self-test failed in a child process"),
    ],
)
def test_operators_that_cannot_be_captured(tmp_path: Path, define: str, cause: str) -> None:
    trace = _record(tmp_path, define)
    assert trace.table("op").collect().is_empty()
    loss = trace.table("loss").collect()
    assert loss.select("source", "table", "records", "cause").rows() == [
        ("torch", "op", None, f"operators of torch 9.9.0 are not captured: {cause}")
    ]
    backends = trace.table("process").collect()["backends"].item()
    assert backends == "torch: 9.9.0, operators not captured"


def test_allocations_that_do_not_come_through_are_said_to_be_lost(tmp_path: Path) -> None:
    trace = _record(tmp_path)
    loss = trace.table("loss").collect()
    assert loss.select("source", "table").rows() == [("torch", "tensor")]
