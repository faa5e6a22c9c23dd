"""The command line on a terminal, in a pipe, interrupted, and when a tool fails."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from cli_sample import write_samples

ROOT = Path(__file__).parents[2]
PASTA = [sys.executable, "-m", "pasta"]
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    write_samples(folder)
    return folder


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables}


def on_terminal(arguments: list[str], folder: Path, columns: int, **variables: str) -> str:
    """Return what a terminal of that width shows of standard output and standard error."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen(
        [*PASTA, *arguments], cwd=folder, env=environment(**variables), stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # EIO: the child has closed its side
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    assert child.wait() == 0, shown.decode()
    return shown.decode().replace("\r\n", "\n")


ANALYZE = ["analyze", "a.pasta", "--tool", "kernels"]


def test_a_terminal_has_colour_and_a_pipe_has_the_same_text_without(samples: Path) -> None:
    shown = on_terminal(ANALYZE, samples, columns=500)
    piped = subprocess.run([*PASTA, *ANALYZE], cwd=samples, env=environment(), capture_output=True, text=True)
    assert ESCAPE in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == piped.stdout


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_switched_off(samples: Path, variables: dict[str, str]) -> None:
    assert ESCAPE not in on_terminal(ANALYZE, samples, columns=80, **variables)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(samples: Path, columns: int) -> None:
    for arguments in (ANALYZE, ["info", "a.pasta"], ["schema", "kernel"]):
        lines = on_terminal(arguments, samples, columns, NO_COLOR="1").splitlines()
        end = lines.index("Not recorded") if "Not recorded" in lines else None
        tables = [line for line in lines[:end] if line.startswith("  ")]
        assert tables
        assert max(map(len, tables)) <= columns


@pytest.mark.parametrize("verb", [[], ["record"], ["analyze", "--tool", "kernels"], ["export"], ["doctor"]])
@pytest.mark.parametrize("columns", [40, 200])
def test_help_fits_any_width(samples: Path, verb: list[str], columns: int) -> None:
    lines = on_terminal([*verb, "--help"], samples, columns).splitlines()
    assert [line for line in lines if len(line) > columns] == []


def test_ctrl_c_ends_a_verb_without_a_traceback(samples: Path, tmp_path: Path) -> None:
    tool = tmp_path / "waits.py"
    tool.write_text(
        "import signal\nfrom pasta.tools import Result, Tool\n"
        "class Waits(Tool):\n    name, summary = 'waits', 'waits for a signal'\n"
        "    def run(self, trace, options):\n        print('ready', flush=True)\n        signal.pause()\n"
    )
    arguments = ["analyze", str(samples / "a.pasta"), "--tool", str(tool)]
    child = subprocess.Popen(
        [*PASTA, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert child.returncode == 130
    assert "Traceback" not in errors


@pytest.fixture
def failing_tool(tmp_path: Path) -> Path:
    tool = tmp_path / "fails.py"
    tool.write_text(
        "from pasta.tools import Result, Tool\n"
        "class Fails(Tool):\n    name, summary = 'fails', 'has a bug'\n"
        "    def run(self, trace, options):\n        return 1 / 0\n"
    )
    return tool


def test_an_internal_error_is_one_line_and_says_how_to_see_more(samples: Path, failing_tool: Path) -> None:
    run = [*PASTA, "analyze", str(samples / "a.pasta"), "--tool", str(failing_tool)]
    short = subprocess.run(run, env=environment(), capture_output=True, text=True)
    assert (short.returncode, short.stdout) == (125, "")
    assert re.fullmatch(r"pasta: error: .*ZeroDivisionError.*PASTA_DEBUG=1.*\n", short.stderr)
    long = subprocess.run(run, env=environment(PASTA_DEBUG="1"), capture_output=True, text=True)
    assert "Traceback" in long.stderr
    assert "fails.py" in long.stderr


def test_text_that_the_terminal_cannot_show_does_not_stop_anything(samples: Path) -> None:
    ascii_only = environment(LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    ended = subprocess.run([*PASTA, "analyze", "a.pasta"], cwd=samples, env=ascii_only, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.isascii()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pasta an", {"analyze"}),
        ("pasta analyze --tool kern", {"kernels"}),
        ("pasta schema mem", {"memcpy", "memset"}),
        ("pasta export a.pasta --to p", {"parquet", "perfetto"}),
        ("pasta analyze a.pasta --format j", {"json"}),
        ("pasta analyze --tool nonsense --for", {"--format"}),
    ],
)
def test_completion(samples: Path, line: str, offered: set[str]) -> None:
    words = line.split(" ")
    variables = {"_PASTA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ended = subprocess.run(PASTA, cwd=samples, env=environment(**variables), capture_output=True, text=True)
    assert set(ended.stdout.split()) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    variables = {"_PASTA_COMPLETE": f"source_{shell}"}
    ended = subprocess.run(PASTA, env=environment(**variables), capture_output=True, text=True)
    assert "_PASTA_COMPLETE=complete_" in ended.stdout
