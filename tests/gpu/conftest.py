"""GPU tests: skipped without an NVIDIA GPU, and where nvcc is missing those that need a CUDA program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration"))

HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not HAS_GPU:
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


def build_timeline(folder: Path, *options: str) -> Path:
    """Build programs/timeline.cu."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    program = folder / "timeline"
    source = Path(__file__).parent / "programs" / "timeline.cu"
    stubs = Path(nvcc).resolve().parents[1] / "lib64" / "stubs"
    subprocess.run([nvcc, "-O2", "-arch=native", *options, source, "-o", program, f"-L{stubs}", "-lcuda"], check=True)
    return program


@pytest.fixture(scope="session")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, linked with nvcc's default, the static runtime."""
    return build_timeline(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def timeline_shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, linked with libcudart.so."""
    return build_timeline(tmp_path_factory.mktemp("programs"), "-cudart", "shared")
