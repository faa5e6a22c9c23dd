"""`pasta report` writes one page that needs nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_sample import write_samples

from pasta.cli.main import VERBS
from pasta.report import FORMATS

needs_html = pytest.mark.skipif("html" not in FORMATS, reason="pasta.report has no html yet")


def test_the_verb_is_shown_when_it_works() -> None:
    assert VERBS["report"].hidden == ("html" not in FORMATS)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    write_samples(tmp_path)
    return tmp_path


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "pasta", "report", *arguments]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True)


@needs_html
def test_the_page_shows_what_the_tools_found_and_loads_nothing(samples: Path) -> None:
    ended = report(samples, "a.pasta")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "pasta: a.html\n")
    page = (samples / "a.html").read_text()
    assert "gemm" in page
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:|//|file:)""", page) == []


@needs_html
def test_the_page_has_the_tools_that_were_asked_for(samples: Path) -> None:
    assert report(samples, "a.pasta", "-t", "./mine.py", "-o", "mine.html").returncode == 0
    assert "gemm" not in (samples / "mine.html").read_text()


@needs_html
def test_a_page_that_exists_is_kept_without_overwrite(samples: Path) -> None:
    (samples / "a.html").write_text("mine")
    assert "--force-overwrite" in report(samples, "a.pasta").stderr
    assert (samples / "a.html").read_text() == "mine"
    assert report(samples, "a.pasta", "-f").returncode == 0
    assert "gemm" in (samples / "a.html").read_text()
