"""Runs the tests away from the checkout: a Python started there would import it, not what is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

_ROOT = Path(__file__).resolve().parents[1]
if not (_ROOT / "pasta" / "lib").exists():  # not built into the tree: the processes of pytest-xdist begin in it too
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _ROOT]

import pasta  # noqa: E402

# How long an example takes is the machine's affair.
settings.register_profile("pasta", deadline=None)
settings.load_profile("pasta")


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    if Path(pasta.__file__).resolve().is_relative_to(_ROOT / "pasta"):  # built into the tree by scripts/build.sh
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *(p for p in others if p and p != ".")])
    os.chdir(tmp_path_factory.mktemp("cwd"))
