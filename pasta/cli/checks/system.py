"""pasta itself, and what the system lets it do."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pasta import __version__
from pasta.cli.checks.check import Check
from pasta.errors import PastaError

#: Variables of other tools that use the same ways into a program, or the same single CUPTI subscription.
_OTHER_TOOLS = {
    "CUDA_INJECTION64_PATH": "another tool is injected into CUDA programs",
    "NVTX_INJECTION64_PATH": "another tool takes the NVTX ranges",
    "NSYS_PROFILING_SESSION_ID": "this shell runs under Nsight Systems, which holds CUPTI",
    "KINETO_USE_DAEMON": "PyTorch waits for a Dynolog daemon and takes CUPTI when it is asked to trace",
    "ROCP_TOOL_LIBRARIES": "another tool is loaded into ROCm programs",
    "HSA_TOOLS_LIB": "another tool is loaded into ROCm programs",
    "LD_PRELOAD": "other libraries are loaded into every program",
    "OPENCL_LAYERS": "other layers are loaded into OpenCL programs",
}


def installation() -> Iterator[Check]:
    """Yield checks of Python and of the injected library."""
    yield Check("ok", "python", f"{platform.python_version()}, pasta {__version__}")
    from pasta.inject.library import library_path

    try:
        yield Check("ok", "library", str(library_path()))
    except PastaError as error:
        yield Check("fail", "library", error.message, "pip install --force-reinstall pasta-profiler")


def permissions() -> Iterator[Check]:
    """Yield checks of the places that pasta writes to and of what the kernel allows."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for name, folder, fix in (
        ("directory", Path.cwd(), "cd to a directory that is yours, or use pasta record -o"),
        ("temporary", Path(tempfile.gettempdir()), "export TMPDIR=$HOME"),
        ("cache", cache, "export XDG_CACHE_HOME=$(mktemp -d)"),
    ):
        if _can_write(folder):
            yield Check("ok", name, f"{folder} is writable")
        else:
            yield Check("fail", name, f"{folder} is not writable", fix)
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    if scope:
        yield Check("ok", "ptrace scope", f"{scope}; pasta starts its programs and attaches to none")


def environment() -> Iterator[Check]:
    """Yield a check for each other tool that this environment would load into a recorded program."""
    found = False
    for name, meaning in _OTHER_TOOLS.items():
        if os.environ.get(name):
            found = True
            yield Check("warn", "other tools", f"{name}={os.environ[name]}: {meaning}", f"unset {name}")
    if not found:
        yield Check("ok", "other tools", "none in the environment")


def _can_write(folder: Path) -> bool:
    """Return whether files can be created in ``folder``, or in the parent that it would be created in."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
