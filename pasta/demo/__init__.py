"""Small real programs to record: what `pasta demo` runs. Each is a script of its own that checks its results."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """A demo program: its script in this folder, what it does, the modules it imports."""

    script: str
    summary: str
    needs: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Return the path of the script."""
        return Path(__file__).parent / self.script

    def missing(self) -> list[str]:
        """Return the modules that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


PROGRAMS: dict[str, Demo] = {
    "opencl": Demo(
        "opencl_kernels.py",
        "OpenCL: vector add, tiled matmul, reduction, two transposes, BFS",
        ("pyopencl", "numpy"),
    ),
    "torch": Demo(
        "torch_train.py",
        "PyTorch: a small training loop on the CPU, with OpenCL kernels beside it where a device is",
        ("torch",),
    ),
}
