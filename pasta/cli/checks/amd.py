"""AMD: the kernel driver and ROCprofiler-SDK."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pasta.cli.checks.check import Check

_DEVICE = Path("/dev/kfd")
_VERSIONS = ("/opt/rocm/.info/version", "/opt/rocm/.info/version-dev")


def amd_checks() -> Iterator[Check]:
    """Yield checks of ROCm; the first says whether there is anything of AMD's at all."""
    if not _DEVICE.exists():
        yield Check("none", "AMD", "no driver (/dev/kfd)")
        return
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        yield Check("fail", "AMD", f"{_DEVICE} may not be opened", "sudo usermod -aG render,video $USER")
        return
    version = next((Path(file).read_text().strip() for file in _VERSIONS if Path(file).is_file()), "of unknown version")
    yield Check("ok", "AMD", f"ROCm {version}; pasta's ROCm support was never run on AMD hardware")
    sdk = sorted(Path("/opt/rocm/lib").glob("librocprofiler-sdk.so*"))
    if sdk:
        yield Check("ok", "ROCprofiler", str(sdk[0]))
    else:
        yield Check("warn", "ROCprofiler", "librocprofiler-sdk.so not found", "sudo apt-get install rocprofiler-sdk")
