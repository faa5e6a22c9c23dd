"""OpenCL: which loaders there are, and which platforms and devices each finds."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pasta.cli.checks.check import REBUILD, Check, library_exports, run_child
from pasta.inject.icd import INSTALL_HINT, cpu_device_variables, find_cpu_runtime, other_platforms, python_prefixes

_SECONDS = 60.0


def opencl_checks() -> Iterator[Check]:
    """Yield a check of each OpenCL loader, and one of the CPU runtime of the ``cpu`` extra."""
    built = library_exports("clInitLayer")
    if not built:
        yield Check("fail", "OpenCL backend", "this build of pasta was made without OpenCL's headers", REBUILD)
    yield _cpu_runtime()
    added, _ = cpu_device_variables([], os.environ, False)
    variables = {**os.environ, **added}
    loaders = _loaders()
    for name, path in loaders.items():
        yield _loader(name, path, variables, built)
    if not loaders:
        yield Check("none", "OpenCL", "no loader (libOpenCL.so.1)", f"for a CPU device: {INSTALL_HINT}")


def _cpu_runtime() -> Check:
    prefixes = python_prefixes([])
    runtime = find_cpu_runtime(prefixes)
    if runtime is not None:
        others = other_platforms(os.environ, prefixes)
        use = "pasta record --device cpu shows it" if others else "pasta record shows it"
        return Check("ok", "CPU runtime", f"{runtime}; no loader finds it by itself, {use} to the program")
    half = next((prefix for prefix in prefixes if (prefix / "lib" / "libintelocl.so").exists()), None)
    if half is not None:
        return Check("fail", "CPU runtime", f"{half}/lib lacks libsvml.so", "pip install intel-cmplr-lib-rt")
    return Check("none", "CPU runtime", "not installed", INSTALL_HINT)


def _loaders() -> dict[str, str]:
    """Return the loaders that programs may use: the system's, and pyopencl, which brings its own."""
    loaders = {}
    system = ctypes.util.find_library("OpenCL")
    if system:
        loaders["OpenCL"] = system
    if importlib.util.find_spec("pyopencl"):
        loaders["pyopencl"] = "pyopencl"
    return loaders


def _loader(name: str, path: str, variables: Mapping[str, str], built: bool) -> Check:
    ended = run_child([sys.executable, "-m", "pasta.cli.opencl_probe", path], variables, _SECONDS)
    if ended.failure:
        return Check("fail", name, f"{path}: {ended.failure}", "remove or repair the drivers in /etc/OpenCL/vendors")
    platforms: list[dict[str, Any]] = json.loads(ended.output)
    devices = [f"{p['platform']}: {', '.join(p['devices'])}" for p in platforms if p["devices"]]
    if devices:
        return Check("ok", name, "; ".join(devices), is_accelerator=built)
    what = "no platform" if not platforms else "platforms without a device"
    return Check("warn", name, f"{path}: {what}", f"for a CPU device: {INSTALL_HINT}")
