"""Runs the C++ tests, which conftest.py builds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SKIPPED = 77


@pytest.mark.parametrize("name", sorted(path.stem for path in _HERE.glob("test_*.cpp")))
def test_program(build: Path, name: str) -> None:
    result = subprocess.run([build / name], capture_output=True, text=True, timeout=120)
    if result.returncode == _SKIPPED:
        pytest.skip("its vendor's headers are not installed")
    assert result.returncode == 0, result.stderr
