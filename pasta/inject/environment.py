"""Builds the environment of the target: the doors to open and the options of the recording."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pasta.inject.icd import cpu_device_variables, python_prefixes
from pasta.inject.library import library_path, site_directory
from pasta.inject.options import RecordOptions

#: Where wheels put the libraries that the CUDA backends look for: nvidia-cuda-cupti, nvidia-cuda-sanitizer-api.
_WHEELS = {
    "PASTA_CUPTI_HINTS": "lib/python3*/site-packages/nvidia/*/lib/libcupti.so.1*",
    "PASTA_SANITIZER_HINTS": "lib/python3*/site-packages/nvidia/*/**/libsanitizer-public.so",
}

_INJECTIONS = {
    "CUDA_INJECTION64_PATH": b"InitializeInjection",
    "NVTX_INJECTION64_PATH": b"InitializeInjectionNvtx2",
}


_OPENED_BY = {"CUDA_INJECTION64_PATH": "CUDA", "NVTX_INJECTION64_PATH": "NVTX"}


@dataclass
class TargetEnvironment:
    """Variables to set for the target, lines to tell the user about them, and rows of `loss`: what they leave out."""

    variables: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    losses: list[dict[str, str]] = field(default_factory=list)


def record_environment(
    options: RecordOptions,
    environment: Mapping[str, str],
    command: Sequence[str] = (),
    device: str | None = None,
    registry: Path | None = None,
) -> TargetEnvironment:
    """Return what must be set on top of ``environment`` so that ``command`` is recorded.

    ``registry`` is a directory in which the target's processes note the outputs they create; without it (for
    ``pasta env``) nothing collects them, and what they leave is a valid trace as it is. Raises ``PastaError``
    when the injected library is missing.
    """
    library = str(library_path())
    target = TargetEnvironment()
    variables = target.variables
    variables["LD_PRELOAD"] = _prepend(library, environment.get("LD_PRELOAD"), ":")
    variables["OPENCL_LAYERS"] = _prepend(library, environment.get("OPENCL_LAYERS"), ":")
    variables["PYTHONPATH"] = _prepend(str(site_directory()), environment.get("PYTHONPATH"), ":")
    _open_cuda(library, environment, target)
    if "CUDA_INJECTION64_PATH" in variables:
        for name, pattern in _WHEELS.items():
            found = [str(path) for prefix in python_prefixes(command) for path in sorted(prefix.glob(pattern))]
            if found:
                variables[name] = ":".join(dict.fromkeys(found))

    icd, note = cpu_device_variables(command, environment, device == "cpu")
    variables.update(icd)
    if note:
        target.notes.append(note)

    variables.update(options.variables())
    if options.memory is not None:
        # A program from pyopencl's cache comes as a binary, which cannot be instrumented.
        variables["PYOPENCL_NO_CACHE"] = "1"
    if registry is not None:
        variables["PASTA_RECORDING"] = uuid.uuid4().hex
        variables["PASTA_REGISTRY"] = str(registry)
        variables["PASTA_ANCHOR_NS"] = str(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    return target


def _open_cuda(library: str, environment: Mapping[str, str], target: TargetEnvironment) -> None:
    """Open the CUDA and NVTX doors that this build of the library has, where nobody else stands in them.

    Nothing reads the variables in a program without CUDA or NVTX; a library without the entry point would
    make cuInit fail.
    """
    symbols = Path(library).read_bytes()
    for name, entry in _INJECTIONS.items():
        theirs = environment.get(name)
        if entry + b"\0" not in symbols:
            continue
        if theirs and theirs != library:
            cause = f"{name} is already set to {theirs}: that tool keeps it, pasta does without"
            target.losses.append({"source": _OPENED_BY[name], "cause": cause, "remedy": f"unset {name}"})
            target.notes.append(f"{cause}; unset it to record {_OPENED_BY[name]}")
        else:
            target.variables[name] = library


def _prepend(ours: str, theirs: str | None, separator: str) -> str:
    """Put ``ours`` first in a path list, once."""
    rest = [part for part in (theirs or "").split(separator) if part and part != ours]
    return separator.join([ours, *rest])
