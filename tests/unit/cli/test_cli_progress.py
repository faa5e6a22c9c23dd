"""The progress bar: on a terminal only, for long work only, gone at the end."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from pasta.cli import progress as module
from pasta.cli.progress import Bar, progress


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    """Make standard error a terminal; in the test itself, since pytest replaces it between fixtures and tests."""
    stream = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with progress("counting", 3) as bar:
        bar.advance(3)
    assert terminal.getvalue() == ""


def test_work_that_lasts_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(module, "DELAY_SECONDS", 0.0)
    shown = threading.Event()
    draw = Bar.show

    def show(bar: Bar) -> None:
        draw(bar)
        shown.set()

    monkeypatch.setattr(Bar, "show", show)
    with progress("counting", 3) as bar:
        assert shown.wait(timeout=60)
        bar.advance(1)
    assert "counting" in terminal.getvalue()


def test_nothing_is_shown_where_nobody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(Bar, "show", lambda bar: pytest.fail("drawn without a terminal"))
    with progress("counting") as bar:
        bar.reach(1, 2)
    assert capsys.readouterr().err == ""


def test_a_bar_that_comes_too_late_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    bar = Bar("counting", 3)
    bar.hide()
    bar.show()
    assert "counting" not in terminal.getvalue()
