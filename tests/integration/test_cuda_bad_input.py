"""CUDA programs that cannot be recorded: they run on as without pasta, one line names the fix, and `loss` keeps it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cuda_stub_run import SOURCES, Stub, build_stub, rows
from recorded import record


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return build_stub(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def program(stub: Stub) -> Path:
    return stub.build(SOURCES / "program.c")


def said(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what pasta and the program said before the line that sums the recording up."""
    return [line for line in result.stderr.splitlines() if "not recorded" in line or line.startswith("program:")]


PRIVILEGES = "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
VERSION = "update the driver, or set PASTA_CUPTI_PATH to the CUPTI of the driver's CUDA version"
PAIR = " (CUPTI of CUDA 13.0, driver for CUDA 12.2)"


@pytest.mark.parametrize(
    ("variables", "cause", "fix"),
    [
        ({"PASTA_CUPTI_PATH": "/nonexistent/libcupti.so"}, "no CUPTI found", "pip install nvidia-cuda-cupti"),
        ({"STUB_SUBSCRIBE": "15"}, f"CUPTI_ERROR_NOT_INITIALIZED{PAIR}", VERSION),
        ({"STUB_SUBSCRIBE": "14"}, f"CUPTI_ERROR_NOT_COMPATIBLE{PAIR}", VERSION),
        ({"STUB_SUBSCRIBE": "35"}, f"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES{PAIR}", PRIVILEGES),
        ({"STUB_SUBSCRIBE": "39"}, "another tool uses CUPTI in this process", "run one profiler at a time"),
    ],
)
def test_cupti_refuses(
    stub: Stub, program: Path, tmp_path: Path, variables: dict[str, str], cause: str, fix: str
) -> None:
    output = tmp_path / "t.pasta"
    result = stub.record([program, "launches", "5"], output, **variables)
    assert (result.returncode, result.stdout) == (3, "done\n")
    assert len(said(result)) == 1, result.stderr
    assert said(result)[0].startswith(f"pasta: CUDA is not recorded: {cause}")
    assert fix in said(result)[0]
    loss = rows(output, "loss").row(0, named=True)
    assert (loss["source"], loss["records"]) == ("cupti", None)
    assert loss["cause"].startswith(cause)
    assert fix in loss["remedy"]
    assert rows(output, "kernel").height == 0


def test_kernels_alone_are_refused(stub: Stub, program: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    result = stub.record([program, "launches", "5", "copies", "2"], output, STUB_ENABLE="35")
    assert result.returncode == 3
    assert said(result) == [f"pasta: kernel is not recorded: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES{PAIR}; {PRIVILEGES}"]
    assert rows(output, "loss").select("table", "remedy").rows() == [("kernel", PRIVILEGES)]
    assert (rows(output, "kernel").height, rows(output, "memcpy").height) == (0, 2)


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"STUB_INIT": "100"}, "cuInit(0) failed: 100"),  # no device
        # Exclusive mode, and another process has the device.
        ({"STUB_CONTEXT": "46"}, "cuCtxCreate(&context, NULL, 0, device) failed: 46"),
    ],
)
def test_the_programs_own_errors_stay_its_own(
    stub: Stub, program: Path, tmp_path: Path, variables: dict[str, str], error: str
) -> None:
    result = stub.record([program, "launches", "5"], tmp_path / "t.pasta", **variables)
    assert result.returncode == 1
    assert said(result) == [f"program: {error}"]


def test_a_kernel_that_fails(stub: Stub, program: Path, tmp_path: Path) -> None:
    """What ran before is there, and the trace says that something did not."""
    output = tmp_path / "t.pasta"
    result = stub.record([program, "launches", "5"], output, STUB_SYNCHRONIZE="700")
    assert result.returncode == 1
    assert said(result) == ["program: cuCtxSynchronize() failed: 700"]
    assert rows(output, "kernel").height == 5
    loss = rows(output, "loss").row(0, named=True)
    assert (loss["table"], loss["records"]) == ("kernel", None)
    assert loss["cause"].startswith("a kernel of the program failed (illegal address)")


def test_no_driver(tmp_path: Path) -> None:
    code = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) { if (dlopen("libcuda.so.1", RTLD_NOW) == NULL) puts("on the CPU then"); return 4; }
"""
    (tmp_path / "program.c").write_text(code)
    subprocess.run(["gcc", tmp_path / "program.c", "-o", tmp_path / "program", "-ldl"], check=True)
    result = record([tmp_path / "program"], tmp_path / "t.pasta")
    if result.stdout == "":
        pytest.skip("this machine has a driver")
    assert (result.returncode, result.stdout) == (4, "on the CPU then\n")
    assert "no process touched an accelerator or a framework: nothing was recorded; pasta doctor" in result.stderr


def test_a_program_without_a_gpu(tmp_path: Path) -> None:
    result = record(["/bin/sh", "-c", "exit 6"], tmp_path / "t.pasta")
    assert result.returncode == 6
    assert "no process touched an accelerator or a framework: nothing was recorded; pasta doctor" in result.stderr


def test_the_door_belongs_to_another_tool(stub: Stub, program: Path, tmp_path: Path) -> None:
    code = '#include <stdio.h>\nint InitializeInjection(void) { puts("tool"); return 1; }\n'
    (tmp_path / "tool.c").write_text(code)
    tool = tmp_path / "tool.so"
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "tool.c", "-o", tool], check=True)
    output = tmp_path / "t.pasta"
    result = stub.record([program, "launches", "5"], output, CUDA_INJECTION64_PATH=str(tool))
    assert (result.returncode, result.stdout) == (3, "tool\ndone\n")
    cause = f"CUDA_INJECTION64_PATH is already set to {tool}: that tool keeps it, pasta does without"
    assert f"pasta: {cause}; unset it to record CUDA" in result.stderr.splitlines()
    assert rows(output, "loss").select("source", "cause", "remedy").rows() == [
        ("CUDA", cause, "unset CUDA_INJECTION64_PATH")
    ]
