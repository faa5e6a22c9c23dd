"""Builds the C++ tests: one program a file, built by CMake into pytest's cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]


def _run(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


@pytest.fixture(scope="session")
def build(pytestconfig: pytest.Config) -> Path:
    cmake = Path(pytest.importorskip("cmake").CMAKE_BIN_DIR) / "cmake"
    pybind11 = pytest.importorskip("pybind11")
    directory = pytestconfig.cache.mkdir("cpp")  # type: ignore[union-attr]
    python = [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]
    options = ["-DPASTA_TESTS=ON", "-DPASTA_WERROR=ON", "-DPASTA_CUDA_ARCHITECTURES=90"]
    _run(cmake, "-S", _ROOT, "-B", directory, *options, *python)
    _run(cmake, "--build", directory, "--target", "cpp_tests", "--parallel", "2")
    return Path(directory) / "cpp-tests"
