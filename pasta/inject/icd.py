"""Makes the CPU OpenCL runtime of the ``cpu`` extra visible to the target.

The Intel wheels bring no usable ``.icd`` file, so an OpenCL loader does not find them. pasta keeps a private
directory with one and points the target at it with ``OCL_ICD_VENDORS``, for the target only.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: What the user types to get a CPU device.
INSTALL_HINT = "pip install pyopencl intel-opencl-rt intel-cmplr-lib-rt"

_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_RUNTIME = "libintelocl.so"
#: libintelocl.so is loaded without complaint and then finds no device when this one is missing.
_RUNTIME_NEEDS = "libsvml.so"


def python_prefixes(command: Sequence[str]) -> list[Path]:
    """Return the environments in which the runtime may be installed: the target's Python's, then pasta's."""
    prefixes = []
    program = shutil.which(command[0]) if command else None
    if program and Path(program).name.startswith("python"):
        prefixes.append(Path(program).parent.parent)
    return [*prefixes, Path(sys.prefix)]


def find_cpu_runtime(prefixes: Sequence[Path]) -> Path | None:
    """Return the path of an installed Intel CPU runtime, or None. Both wheels of the extra are needed."""
    for prefix in prefixes:
        runtime = prefix / "lib" / _RUNTIME
        if runtime.exists() and (prefix / "lib" / _RUNTIME_NEEDS).exists():
            return runtime
    return None


def other_platforms(environment: Mapping[str, str], prefixes: Sequence[Path]) -> list[str]:
    """Return the OpenCL platforms (their ``.icd`` files) that the target sees without our help.

    pyopencl's bundled loader also reads the directory it lies in. Oclgrind is a simulator, not a device that
    anyone wants by default, and does not count.
    """
    if environment.get("OCL_ICD_VENDORS") or environment.get("OCL_ICD_FILENAMES"):
        return [environment.get("OCL_ICD_VENDORS") or environment["OCL_ICD_FILENAMES"]]
    directories = [Path(environment.get("OPENCL_VENDOR_PATH") or _SYSTEM_VENDORS)]
    for prefix in prefixes:
        directories += sorted(prefix.glob("lib/python3*/site-packages/pyopencl/.libs"))
    return [
        str(icd) for folder in directories for icd in sorted(folder.glob("*.icd")) if icd.name != "oclgrind.icd"
    ]


def private_directory(runtime: Path) -> Path:
    """Create (or find) the directory with an ``.icd`` file for ``runtime`` and return its path."""
    import hashlib

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "pasta" / f"icd-{hashlib.sha256(str(runtime).encode()).hexdigest()[:12]}"
    icd = directory / "intel.icd"
    text = f"{runtime}\n"
    if not icd.is_file() or icd.read_text() != text:
        directory.mkdir(parents=True, exist_ok=True)
        draft = directory / f"intel.icd.{os.getpid()}"
        draft.write_text(text)
        draft.rename(icd)
    return directory


def missing_device(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what to tell a user whose program launched nothing, when no OpenCL device is here; else ""."""
    prefixes = python_prefixes(command)
    if other_platforms(environment, prefixes) or find_cpu_runtime(prefixes):
        return ""
    return f"no kernels were seen, and there is no OpenCL device here: {INSTALL_HINT} adds the CPU as one"


def cpu_device_variables(
    command: Sequence[str], environment: Mapping[str, str], wanted: bool
) -> tuple[dict[str, str], str]:
    """Return the variables that give the target a CPU OpenCL device, and a line that says so (or "").

    ``wanted`` (``--device cpu``) asks for it even where another platform is there.
    """
    prefixes = python_prefixes(command)
    if not wanted and other_platforms(environment, prefixes):
        return {}, ""
    runtime = find_cpu_runtime(prefixes)
    if runtime is None:
        return {}, ""
    return {"OCL_ICD_VENDORS": str(private_directory(runtime))}, f"OpenCL: using the CPU runtime {runtime}"
