"""What ``pasta doctor`` looks at: one module a vendor or concern, each a function that yields its checks."""

from __future__ import annotations

from collections.abc import Iterator

from pasta.cli.checks.amd import amd_checks
from pasta.cli.checks.check import Check
from pasta.cli.checks.nvidia import nvidia_checks
from pasta.cli.checks.opencl import opencl_checks
from pasta.cli.checks.system import environment, installation, permissions
from pasta.cli.checks.torch import torch_checks

__all__ = ["Check", "all_checks"]


def all_checks() -> Iterator[Check]:
    """Yield all checks of this machine; the last one says whether there is any accelerator at all."""
    yield from installation()
    found = []
    for checks_of in (opencl_checks, nvidia_checks, amd_checks):
        for check in checks_of():
            found.append(check)
            yield check
    yield from torch_checks()
    yield from permissions()
    yield from environment()
    usable = [check.name for check in found if check.is_accelerator and check.status == "ok"]
    if usable:
        yield Check("ok", "accelerator", f"usable through {', '.join(usable)}")
    else:
        yield Check("fail", "accelerator", "none that pasta can use", "pip install 'pasta-profiler[cpu]'")
