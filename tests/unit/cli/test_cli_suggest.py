"""What is said about a name that does not exist."""

from __future__ import annotations

import pytest

from pasta.cli.main import run
from pasta.cli.suggest import unknown


def test_near_names_come_first_then_where_all_are_listed() -> None:
    error = unknown("verb", "anlyze", ["analyze", "query"], "pasta --help")
    assert str(error) == "no verb 'anlyze'; did you mean analyze? pasta --help lists them"


def test_a_long_name_is_cut() -> None:
    assert len(unknown("verb", "x" * 10_000, ["analyze"], "pasta --help").message) < 100


def test_a_name_with_control_characters_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["a\nb\x1b[31m"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "\x1b" not in error
