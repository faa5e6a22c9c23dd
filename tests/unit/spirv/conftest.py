"""Fixtures of the SPIR-V instrumentation tests: the CPU runtime is needed by those that run kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import spirv_harness

spirv_harness.context()  # while the tests are collected: none has listed the platforms yet


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """Builds the module before the time of a test begins."""
    spirv_harness.native()


@pytest.fixture
def device() -> None:
    """Skips where the Intel OpenCL runtime for CPUs (extra `pasta[cpu]`) is not installed."""
    if spirv_harness.context() is None:
        pytest.skip("needs intel-opencl-rt and pyopencl")


@pytest.fixture
def compiler() -> None:
    """Skips where there is no OpenCL C compiler library."""
    if not Path(spirv_harness.front_end()).exists():
        pytest.skip("needs libcommon_clang.so of intel-opencl-rt")
