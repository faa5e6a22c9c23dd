"""Runs the table of ``cli_cases``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import CASES, Case
from cli_sample import write_samples


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    write_samples(folder)
    return folder


@pytest.fixture(scope="session")
def command_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``pasta`` and ``python``, for the PATH."""
    folder = tmp_path_factory.mktemp("bin")
    for name, arguments in (("pasta", "-m pasta "), ("python", "")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        script.chmod(0o755)
    return folder


@pytest.fixture
def folder(samples: Path, tmp_path: Path) -> Path:
    """A copy of the samples that a case may change."""
    return Path(shutil.copytree(samples, tmp_path / "work"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.run)
def test_command_line(case: Case, folder: Path, command_folder: Path) -> None:
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PASTA_", "COLUMNS"))}
    variables |= {"PATH": f"{command_folder}:{os.environ['PATH']}"}
    check(case, folder, variables)


def check(case: Case, folder: Path, variables: dict[str, str]) -> None:
    """Run the line of ``case`` in ``folder`` and compare what it did."""
    ended = subprocess.run(
        ["bash", "-c", case.run], cwd=folder, env=variables, capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in ended.stderr
    assert ended.returncode == case.rc, ended.stderr
    assert re.search(case.out, ended.stdout), ended.stdout
    assert re.search(case.err, ended.stderr), ended.stderr
