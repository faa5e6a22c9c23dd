"""Builds the stub of CUDA and CUPTI and programs that use it (cuda_stub/), for the tests that need no GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, record

from pasta.cli.checks.check import library_exports

SOURCES = Path(__file__).parent / "cuda_stub"


def headers(name: str) -> Path:
    """Return the folder of NVIDIA's wheels that has the header ``name``; skips the test when there is none."""
    for path in (path for folder in sys.path if folder for path in sorted(Path(folder).glob("nvidia/*/include"))):
        if (path / name).exists():
            return path
    pytest.skip(f"no {name}: pip install 'pasta-profiler[dev]'")


@dataclass
class Stub:
    """The folder with libcuda.so.1, which is CUPTI too."""

    folder: Path

    def build(self, source: Path, *options: str) -> Path:
        """Compile a program against the stub."""
        program = self.folder / source.stem
        includes = [f"-isystem{headers('cuda.h')}", f"-isystem{headers('nvtx3/nvToolsExtPayload.h')}"]
        compiler = "gcc" if source.suffix == ".c" else "g++"
        subprocess.run([compiler, *includes, source, "-o", program, self.folder / "libcuda.so.1", *options], check=True)
        return program

    @property
    def variables(self) -> dict[str, str]:
        """What makes the stub the driver and CUPTI of a program of ``build`` that is recorded."""
        return {"LD_LIBRARY_PATH": str(self.folder), "PASTA_CUPTI_PATH": str(self.folder / "libcuda.so.1")}

    def record(
        self, command: list[str | Path], output: Path, *options: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Record a program of ``build`` with the stub as its driver and as CUPTI."""
        return record(command, output, options, **{**self.variables, **variables})


def build_stub(folder: Path) -> Stub:
    """Build the stub in ``folder``; skips where headers or the CUDA backend are missing."""
    if not library_exports("InitializeInjection"):
        pytest.skip("built without CUDA")
    library = folder / "libcuda.so.1"
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden",
         "-isystem", headers("cupti.h"), "-isystem", headers("cuda.h"), SOURCES / "cuda_stub.cpp", "-o", library,
         "-Wl,-soname,libcuda.so.1"],
        check=True,
    )  # fmt: skip
    return Stub(folder)


def rows(path: Path, table: str) -> pl.DataFrame:
    """Return a table of a trace."""
    with Trace.open(path) as trace:
        return trace.table(table).collect()
