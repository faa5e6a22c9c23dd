"""The lines of `pasta env` give a shell the variables that record sets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pasta.cli import env
from pasta.cli.env import Shell


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An injected library in a place whose name has to be quoted."""
    path = tmp_path / "it's here" / "libpasta_inject.so"
    path.parent.mkdir()
    path.write_bytes(b"InitializeInjection\0")
    monkeypatch.setenv("PASTA_LIBRARY", str(path))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return path


def test_the_path_of_the_library(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.command(library=True)
    assert capsys.readouterr().out == f"{library}\n"


@pytest.mark.parametrize("shell", [Shell.BASH, Shell.ZSH, Shell.FISH, Shell.CSH])
def test_a_shell_understands_the_lines(library: Path, capsys: pytest.CaptureFixture[str], shell: Shell) -> None:
    if shutil.which(shell.value) is None:
        pytest.skip(f"needs {shell.value}")
    env.command(output="out-%p.pasta", shell=shell)
    script = capsys.readouterr().out.replace(f" {library}", " x") + "printenv PASTA_OUTPUT CUDA_INJECTION64_PATH\n"
    # LD_PRELOAD would be used by printenv itself.
    script = "\n".join(line for line in script.splitlines() if "LD_PRELOAD" not in line)
    ended = subprocess.run([shell.value, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"{Path.cwd()}/out-%p.pasta", str(library)]


def test_docker_takes_values_as_they_are(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.command(output="/out.pasta", shell=Shell.DOCKER)
    lines = capsys.readouterr().out.splitlines()
    assert f"LD_PRELOAD={library}" in lines
    assert "PASTA_OUTPUT=/out.pasta" in lines


@pytest.mark.parametrize(
    ("shell", "line"), [("/usr/bin/fish", "set -gx PASTA_OUTPUT /o"), ("/bin/odd", "export PASTA_OUTPUT=/o")]
)
def test_the_users_shell_is_the_default(
    library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shell: str, line: str
) -> None:
    monkeypatch.setenv("SHELL", shell)
    env.command(output="/o")
    assert line in capsys.readouterr().out.splitlines()


def test_what_was_preloaded_stays(
    library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/theirs.so")
    env.command(output="/o", shell=Shell.DOCKER)
    assert f"LD_PRELOAD={library}:/theirs.so" in capsys.readouterr().out.splitlines()
