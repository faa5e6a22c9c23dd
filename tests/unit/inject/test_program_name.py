"""What a command line runs, in a word."""

from __future__ import annotations

import pytest

from pasta.program import program_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["./a.out", "-c", "x"], "a.out"),
        (["/usr/bin/python3.11", "src/train.py", "--lr", "1"], "train.py"),
        (["python", "-u", "train.py"], "train.py"),
        (["python", "-m", "pkg.train", "x"], "pkg.train"),
        (["python", "-u", "-m", "pkg"], "pkg"),
        (["python3", "-c", "import os"], "python3"),
        (["bash", "-lc", "make run"], "bash"),
        (["python"], "python"),
        ([], ""),
    ],
)
def test_name(command: list[str], name: str) -> None:
    assert program_name(command) == name
