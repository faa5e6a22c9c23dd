"""The example in docs/tools.md is a tool that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"


def test_the_example_and_its_test_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "waits.py").write_text(tool)
    monkeypatch.chdir(tmp_path)
    exec(compile(test, "docs/tools.md", "exec"), {})


def test_every_building_block_is_listed() -> None:
    modules = {path.stem for path in (PAGE.parents[1] / "pasta/tools/analysis").glob("[a-z]*.py")}
    listed = set(re.findall(r"`(\w+)`", PAGE.read_text().split("## Building blocks")[1]))
    assert modules == listed
