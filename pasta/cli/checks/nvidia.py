"""NVIDIA: the driver, CUPTI for the timing pass, the Sanitizer API for the memory pass."""

from __future__ import annotations

import ctypes.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pasta.cli.checks.check import REBUILD, Check, library_exports

_DRIVER = Path("/proc/driver/nvidia")
_INSTALL = "pip install 'pasta-profiler[nvidia]'"
#: Toolkits, wheels and system folders in which the libraries are found.
_FOLDERS = ("extras/CUPTI/lib64", "targets/*/lib", "compute-sanitizer", "lib", "lib64")


def nvidia_checks() -> Iterator[Check]:
    """Yield checks of the driver and, where there is one, of what pasta needs beside it."""
    version = _driver_version()
    if version is None:
        yield Check("none", "NVIDIA", "no driver")
        return
    names = _devices()
    what = f"driver {version}, {len(names)} × {names[0]}" if names else f"driver {version}, no device"  # noqa: RUF001
    built = library_exports("InitializeInjection")
    yield Check("ok" if names else "warn", "NVIDIA", what, is_accelerator=built and bool(names))
    if not built:
        yield Check("fail", "CUDA backend", "this build of pasta was made without CUPTI's headers", REBUILD)
    yield _library("CUPTI", "libcupti.so*", "PASTA_CUPTI_PATH", "kernels are not timed without it")
    yield _library(
        "Sanitizer", "libsanitizer-public.so*", "PASTA_SANITIZER_PATH", "memory accesses are not counted without it"
    )
    yield _counters()


def _driver_version() -> str | None:
    try:
        text = (_DRIVER / "version").read_text()
    except OSError:
        return None
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return match[1] if match else "of unknown version"


def _devices() -> list[str]:
    names = []
    for file in sorted(_DRIVER.glob("gpus/*/information")):
        match = re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE)
        names.append(match[1].strip() if match else "NVIDIA device")
    return names


def _library(name: str, pattern: str, variable: str, without: str) -> Check:
    override = os.environ.get(variable)
    if override:
        if Path(override).is_file():
            return Check("ok", name, f"{override} ({variable})")
        return Check("fail", name, f"{variable}={override} is not a file", f"unset {variable}")
    found = _find(pattern)
    if found:
        return Check("ok", name, found)
    return Check("fail" if name == "CUPTI" else "warn", name, f"not found: {without}", _INSTALL)


def _find(pattern: str) -> str | None:
    roots = [Path(root) for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    roots += [wheel for path in sys.path for wheel in sorted(Path(path or ".").glob("nvidia/*"))]
    for root in roots:
        for folder in _FOLDERS:
            for library in sorted(root.glob(f"{folder}/{pattern}")):
                return str(library)
    return ctypes.util.find_library(pattern.removeprefix("lib").partition(".so")[0])


def _counters() -> Check:
    """Say who may read hardware counters: other profilers need them, pasta does not."""
    try:
        restricted = "RmProfilingAdminOnly: 1" in (_DRIVER / "params").read_text()
    except OSError:
        restricted = False
    who = "administrators only" if restricted else "everyone"
    return Check("ok", "GPU counters", f"for {who}; pasta needs none of them")
