"""The CPU OpenCL runtime is found where wheels put it, and shown only to programs that see no other platform."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pasta.inject import icd


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without OpenCL: nothing of the system's, a cache of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(icd, "_SYSTEM_VENDORS", tmp_path / "vendors")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "env" / "lib").mkdir(parents=True)
    return tmp_path / "env"


def install_runtime(prefix: Path, *libraries: str) -> None:
    for name in libraries:
        (prefix / "lib" / name).touch()


def test_nothing_here_names_the_command_that_adds_a_device(prefix: Path) -> None:
    assert icd.cpu_device_variables(["x"], {}, wanted=False) == ({}, "")
    assert icd.INSTALL_HINT in icd.missing_device(["x"], {})


def test_runtime_gets_a_private_directory(prefix: Path) -> None:
    install_runtime(prefix, "libintelocl.so", "libsvml.so")
    variables, note = icd.cpu_device_variables(["x"], {}, wanted=False)
    folder = Path(variables["OCL_ICD_VENDORS"])
    assert [path.read_text() for path in folder.iterdir()] == [f"{prefix}/lib/libintelocl.so\n"]
    assert str(prefix) in note
    assert icd.missing_device(["x"], {}) == ""


def test_runtime_without_its_math_library_is_none(prefix: Path) -> None:
    install_runtime(prefix, "libintelocl.so")
    assert icd.cpu_device_variables(["x"], {}, wanted=True) == ({}, "")


def test_other_platforms_are_left_alone_unless_the_cpu_is_asked_for(prefix: Path, tmp_path: Path) -> None:
    install_runtime(prefix, "libintelocl.so", "libsvml.so")
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    assert icd.cpu_device_variables(["x"], {}, wanted=False) == ({}, "")
    assert "OCL_ICD_VENDORS" in icd.cpu_device_variables(["x"], {}, wanted=True)[0]
    assert icd.cpu_device_variables(["x"], {"OCL_ICD_VENDORS": "/theirs"}, wanted=False) == ({}, "")


def test_simulator_is_no_other_platform(prefix: Path) -> None:
    install_runtime(prefix, "libintelocl.so", "libsvml.so")
    bundled = prefix / "lib" / "python3.11" / "site-packages" / "pyopencl" / ".libs"
    bundled.mkdir(parents=True)
    (bundled / "oclgrind.icd").touch()
    assert icd.cpu_device_variables(["x"], {}, wanted=False)[0]
    (bundled / "pocl.icd").touch()
    assert icd.cpu_device_variables(["x"], {}, wanted=False) == ({}, "")
