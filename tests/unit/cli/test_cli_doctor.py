"""What doctor says of machines that are not this one: drivers that crash, hang or are not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pasta.cli import checks, doctor
from pasta.cli.checks import Check, amd, nvidia, opencl, system
from pasta.cli.checks.check import run_child
from pasta.cli.options import Format

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        (KILL, "killed by SIGSEGV"),
        ("raise SystemExit('no such platform')", "no such platform"),
        ("raise SystemExit(3)", "exit status 3"),
    ],
)
def test_a_child_that_fails_is_an_answer(program: str, failure: str) -> None:
    assert run_child([sys.executable, "-c", program], {}, 60).failure == failure


def test_a_child_that_hangs_is_given_up() -> None:
    assert run_child([sys.executable, "-c", "import signal; signal.pause()"], {}, 0.1).failure == "no answer in 0.1 s"


def test_a_program_that_is_not_there_is_an_answer() -> None:
    assert run_child(["/nonexistent"], {}, 1).failure == "cannot run /nonexistent: No such file or directory"


@pytest.fixture
def one_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Python in place of the real one, whose program a test writes; and one OpenCL loader."""
    fake = tmp_path / "python"
    monkeypatch.setattr(opencl, "_loaders", lambda: {"OpenCL": "libOpenCL.so.1"})
    monkeypatch.setattr(opencl, "find_cpu_runtime", lambda prefixes: Path("/lib/libintelocl.so"))
    monkeypatch.setattr(opencl, "library_exports", lambda entry: True)
    monkeypatch.setattr(opencl.sys, "executable", str(fake))
    return fake


def say(fake: Path, shell: str) -> None:
    fake.write_text(f"#!/bin/sh\n{shell}\n")
    fake.chmod(0o755)


@pytest.mark.parametrize(
    ("shell", "status", "found"),
    [
        ("kill -SEGV $$", "fail", "libOpenCL.so.1: killed by SIGSEGV"),
        ("echo '[]'", "warn", "libOpenCL.so.1: no platform"),
        ('echo \'[{"platform": "P", "devices": []}]\'', "warn", "libOpenCL.so.1: platforms without a device"),
        ('echo \'[{"platform": "P", "devices": ["D", "E"]}]\'', "ok", "P: D, E"),
    ],
)
def test_opencl_drivers_are_tried_in_a_child(one_loader: Path, shell: str, status: str, found: str) -> None:
    say(one_loader, shell)
    check = list(opencl.opencl_checks())[-1]
    assert (check.name, check.status, check.found) == ("OpenCL", status, found)
    assert bool(check.fix) == (status != "ok")


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_nvidia_needs_cupti_where_there_is_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel_module = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\n"
    write(tmp_path, version=kernel_module, params="RmProfilingAdminOnly: 1\n", gpus__0__information="Model: \t H200\n")
    monkeypatch.setattr(nvidia, "_DRIVER", tmp_path)
    monkeypatch.setattr(nvidia, "library_exports", lambda entry: True)
    monkeypatch.setattr(nvidia, "_find", lambda pattern: None)
    found = {check.name: check for check in nvidia.nvidia_checks()}
    assert found["NVIDIA"] == Check("ok", "NVIDIA", "driver 580.95.05, 1 × H200", is_accelerator=True)  # noqa: RUF001
    assert (found["CUPTI"].status, found["Sanitizer"].status) == ("fail", "warn")
    assert found["CUPTI"].fix == "pip install 'pasta-profiler[nvidia]'"
    assert "administrators only" in found["GPU counters"].found


def test_a_wrong_override_of_cupti_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path, version="Kernel Module  580.95.05  Tue")
    monkeypatch.setattr(nvidia, "_DRIVER", tmp_path)
    monkeypatch.setenv("PASTA_CUPTI_PATH", "/nonexistent/libcupti.so")
    cupti = next(check for check in nvidia.nvidia_checks() if check.name == "CUPTI")
    assert (cupti.status, cupti.fix) == ("fail", "unset PASTA_CUPTI_PATH")


def test_cupti_is_found_in_the_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path, extras__CUPTI__lib64__libcupti_so_13="")
    library = tmp_path / "extras/CUPTI/lib64/libcupti_so_13"
    library = library.rename(library.with_name("libcupti.so.13"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert nvidia._find("libcupti.so*") == str(library)


@pytest.mark.parametrize("vendor", [nvidia, amd])
def test_a_vendor_that_is_not_here_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: object) -> None:
    monkeypatch.setattr(nvidia, "_DRIVER", tmp_path / "missing")
    monkeypatch.setattr(amd, "_DEVICE", tmp_path / "missing")
    checks_of = nvidia.nvidia_checks if vendor is nvidia else amd.amd_checks
    assert [check.status for check in checks_of()] == ["none"]


def test_other_tools_in_the_environment_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in system._OTHER_TOOLS:
        monkeypatch.delenv(name, raising=False)
    assert [check.status for check in system.environment()] == ["ok"]
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libinject.so")
    (check,) = system.environment()
    assert (check.status, check.fix) == ("warn", "unset CUDA_INJECTION64_PATH")
    assert "/opt/nsys/libinject.so" in check.found


def test_a_missing_library_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASTA_LIBRARY", "/nonexistent/libpasta_inject.so")
    found = {check.name: check for check in system.installation()}
    assert found["library"].status == "fail"
    assert "/nonexistent/libpasta_inject.so" in found["library"].found


def machine(monkeypatch: pytest.MonkeyPatch, *found: Check) -> None:
    """Replace this machine by one on which these checks are all there is."""
    for name in ("installation", "nvidia_checks", "amd_checks", "torch_checks", "permissions", "environment"):
        monkeypatch.setattr(checks, name, lambda: iter(()))
    monkeypatch.setattr(checks, "opencl_checks", lambda: iter(found))


USABLE = Check("ok", "OpenCL", "Intel: Xeon", is_accelerator=True)
BROKEN = Check("fail", "OpenCL", "killed by SIGSEGV", "repair it")


def test_doctor_prints_a_line_a_check_and_the_fix_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(monkeypatch, BROKEN)
    assert doctor.command() == 1
    assert capsys.readouterr().out.splitlines() == [
        "fail  OpenCL          killed by SIGSEGV",
        "                      fix: repair it",
        "fail  accelerator     none that pasta can use",
        "                      fix: pip install 'pasta-profiler[cpu]'",
    ]


def test_doctor_is_content_with_one_accelerator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(monkeypatch, USABLE)
    assert doctor.command() == 0
    assert "usable through OpenCL" in capsys.readouterr().out


def test_doctor_in_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, USABLE, BROKEN)
    assert doctor.command(Format.JSON, str(tmp_path / "doctor")) == 1
    rows = json.loads((tmp_path / "doctor").read_text())["tables"][0]["rows"]
    assert [(row["status"], row["check"]) for row in rows] == [
        ("ok", "OpenCL"),
        ("fail", "OpenCL"),
        ("ok", "accelerator"),
    ]
