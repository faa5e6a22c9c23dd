"""OpenCL drivers and loaders of this machine, and the C test programs of ``opencl_programs`` run with them.

A driver is found in this Python environment (the Intel CPU runtime, Oclgrind, PoCL's wheel), in the system
(Debian's PoCL), or named by ``PASTA_TEST_DRIVERS``: ``PLATFORM=PATH`` entries, separated by colons.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, environment, record

from pasta.inject.icd import find_cpu_runtime

PROGRAMS = Path(__file__).parent / "opencl_programs"
_PACKAGES = [Path(entry) for entry in sys.path if entry.endswith("-packages")]


@dataclass(frozen=True)
class Driver:
    """An OpenCL driver: the name of its platform, and its library."""

    platform: str
    path: Path
    own_variables: tuple[tuple[str, str], ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """Return what makes a loader see this driver. pyopencl's also sees those in its own folder."""
        return {"OCL_ICD_VENDORS": str(self.path), "OCL_ICD_FILENAMES": str(self.path), **dict(self.own_variables)}


def _find(pattern: str) -> Path | None:
    return next((path for folder in _PACKAGES for path in sorted(folder.glob(pattern))), None)


def drivers() -> dict[str, Driver]:
    """Return the drivers of this machine by a short name."""
    system_pocl = Path("/etc/OpenCL/vendors/pocl.icd")
    paths = {
        "intel": ("Intel", find_cpu_runtime([Path(sys.prefix)])),
        "pocl": ("Portable", _find("pyopencl/.libs/libpocl*.so")),
        "system-pocl": ("Portable", Path(system_pocl.read_text().strip()) if system_pocl.exists() else None),
        "oclgrind": ("Oclgrind", _find("pyopencl/.libs/liboclgrind-rt-icd*.so")),
    }
    found = {name: Driver(platform, path) for name, (platform, path) in paths.items() if path is not None}
    for entry in filter(None, os.environ.get("PASTA_TEST_DRIVERS", "").split(":")):
        platform, path = entry.split("=")
        found[platform.lower()] = Driver(platform, Path(path))
    return found


DRIVERS = drivers()
#: Decorates a test that takes ``driver``: once for each of this machine, skipped where there is none.
each_driver = pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS.keys())


def need_intel() -> Driver:
    """Return the Intel CPU runtime; skips the test where it is not installed."""
    if "intel" not in DRIVERS:
        pytest.skip("needs the OpenCL runtime of the extra `cpu`")
    return DRIVERS["intel"]


def shim(abilities: str, folder: Path, **variables: str) -> Driver:
    """Return Intel's CPU runtime with other abilities, see ``opencl_programs/shim.c``."""
    driver = need_intel()
    library = folder / "libshim.so"
    compile_program("shim", folder, None, "-shared", "-fPIC").rename(library)
    own = {"PASTA_TEST_DRIVER": str(driver.path), "PASTA_TEST_SHIM": abilities, **variables}
    return Driver(driver.platform, library, tuple(own.items()))


def loaders() -> dict[str, Path]:
    """Return the OpenCL loaders that a C program can be linked with, by a short name."""
    found = {}
    system = ctypes.util.find_library("OpenCL")
    if system:
        found["system"] = Path(system)
    khronos = Path(sys.prefix) / "lib" / "libOpenCL.so.1"
    if khronos.exists():
        found["khronos"] = khronos
    nvidia = _find("nvidia/*/lib/libOpenCL.so.1")
    if nvidia is not None:
        found["nvidia"] = nvidia
    return found


LOADERS = loaders()


def compile_program(source: str, folder: Path, library: Path | None, *flags: str) -> Path:
    """Compile ``opencl_programs/SOURCE.c`` into ``folder``, linked with ``library``; skips without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    header = _find("nvidia/*/include/CL/cl.h")
    include = [] if header is None else ["-isystem", str(header.parent.parent)]
    program = folder / source
    linked = [] if library is None else [f"-l:{library.name}", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-O1", *include, *flags, f"{PROGRAMS / source}.c"]
    # RPATH, unlike RUNPATH, also serves what the loader of the Intel wheel needs.
    command += ["-o", str(program), *linked, "-Wl,--disable-new-dtags", "-lpthread", "-ldl"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return program


def compile_with_any_loader(source: str, folder: Path) -> Path:
    """Compile a program with the first loader of this machine."""
    if not LOADERS:
        pytest.skip("needs an OpenCL loader")
    return compile_program(source, folder, next(iter(LOADERS.values())))


def built_library() -> dict[str, str]:
    """Return the variable that selects the injected library, where the tests are told to use another build."""
    return {key: value for key, value in os.environ.items() if key == "PASTA_LIBRARY"}


def run_plain(driver: Driver, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command without pasta."""
    variables = environment(**driver.variables)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)


def run_recorded(
    driver: Driver, output: Path, *command: str | Path, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command under ``pasta record``."""
    return record(command, output, options, **driver.variables, **built_library())


def rows(trace: Trace, table: str) -> pl.DataFrame:
    """Return a table in the order of the program's calls."""
    frame = trace.table(table).collect()
    return frame.sort("correlation_id" if "correlation_id" in frame.columns else "start_ns")
