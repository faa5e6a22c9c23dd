"""Runs the table of ``record_cases``, and what a table cannot say: signals to pasta, kills, unsealed traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import Case
from record_cases import CASES
from recorded import PASTA, Trace, environment
from test_cli_cases import check, command_folder  # noqa: F401

pytest.importorskip("pasta._native")

MARK = """
import ctypes, sys
ctypes.CDLL(None).pasta_range_mark(b"here")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""

DAEMON = """
import ctypes, os
os.mkfifo("fifo"); os.mkfifo("done")
mark = ctypes.CDLL(None).pasta_range_mark
mark(b"first")
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        mark(b"from the daemon")
        os.write(tell, b"x")
        os.closerange(0, 256)
        open("fifo").read()
        mark(b"later")
        with open("done", "w") as done:
            done.write("finished\\n")
        os._exit(0)
    os.read(ready, 1)
    os._exit(0)
os.wait()
"""


@pytest.fixture
def variables(command_folder: Path) -> dict[str, str]:  # noqa: F811
    mark = command_folder / "mark"
    mark.write_text(f"#!{sys.executable}{MARK}")
    mark.chmod(0o755)
    own = {k: v for k, v in environment().items() if k not in ("COLUMNS", "RANK", "LOCAL_RANK")}
    return own | {"PATH": f"{command_folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.run)
def test_record(case: Case, tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "daemon_for_test.py").write_text(DAEMON)
    check(case, tmp_path / "work", variables | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})


WAITS = """
import ctypes, os, signal, sys
def handler(number, frame):
    os.write(1, b"got %d\\n" % number)  # print may be what the signal has interrupted
    sys.exit(5)
signal.signal(signal.SIGTERM, handler)
signal.signal(signal.SIGINT, handler)
ctypes.CDLL(None).pasta_range_mark(b"before")
print("ready", flush=True)
signal.pause()
"""


def start(code: str, output: Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PASTA, "record", "-q", "-o", output, "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **options,  # type: ignore[call-overload]
    )  # fmt: skip


def test_sigterm_is_forwarded_and_the_trace_sealed(tmp_path: Path) -> None:
    pasta = start(WAITS, tmp_path / "t.pasta")
    assert pasta.stdout is not None
    assert pasta.stdout.readline() == "ready\n"
    pasta.send_signal(signal.SIGTERM)
    out, _ = pasta.communicate(timeout=60)
    assert (out, pasta.returncode) == ("got 15\n", 5)
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert trace.table("range").collect()["name"].to_list() == ["before"]


def test_ctrl_c_goes_to_the_program(tmp_path: Path) -> None:
    pasta = start(WAITS, tmp_path / "t.pasta", start_new_session=True)
    assert pasta.stdout is not None
    assert pasta.stdout.readline() == "ready\n"
    os.killpg(pasta.pid, signal.SIGINT)  # as a terminal does: to everyone in the foreground
    out, _ = pasta.communicate(timeout=60)
    assert (out, pasta.returncode) == ("got 2\n", 5)
    assert (tmp_path / "t.pasta").is_file()


def test_second_ctrl_c_gives_up_and_leaves_a_readable_trace(tmp_path: Path) -> None:
    deaf = WAITS.replace("sys.exit(5)", "pass").replace("signal.pause()", "while True: signal.pause()")
    pasta = start(deaf, tmp_path / "t.pasta")
    assert pasta.stdout is not None
    assert pasta.stdout.readline() == "ready\n"
    child = int(Path(f"/proc/{pasta.pid}/task/{pasta.pid}/children").read_text().split()[0])
    try:
        pasta.send_signal(signal.SIGINT)
        os.kill(child, signal.SIGTERM)
        assert pasta.stdout.readline() == "got 15\n"  # by now pasta has seen its first one
        pasta.send_signal(signal.SIGINT)
        assert pasta.wait(timeout=60) is not None
        with Trace.open(tmp_path / "t.pasta") as trace:
            assert trace.notes
    finally:
        os.kill(child, signal.SIGKILL)


def test_killed_pasta_leaves_a_readable_trace(tmp_path: Path) -> None:
    """The launcher itself is killed: what the program wrote is a trace, with the command that was recorded."""
    pasta = start(WAITS, tmp_path / "t.pasta")
    assert pasta.stdout is not None
    assert pasta.stdout.readline() == "ready\n"
    child = int(Path(f"/proc/{pasta.pid}/task/{pasta.pid}/children").read_text().split()[0])
    pasta.kill()
    pasta.wait()
    os.kill(child, signal.SIGTERM)
    assert pasta.stdout.readline() == "got 15\n"
    assert pasta.stdout.read() == ""  # the program has ended
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert trace.table("range").collect()["name"].to_list() == ["before"]
        assert trace.manifest["command"][0] == sys.executable


def test_terminal_of_the_program_is_its_own(tmp_path: Path) -> None:
    """Under a pseudo-terminal the program sees one."""
    import pty

    ask = "import sys; print(sys.stdin.isatty(), sys.stdout.isatty())"
    command = [*PASTA, "record", "-q", "-o", str(tmp_path / "t"), "--", sys.executable, "-c", ask]
    seen: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 1024)
        seen.append(data)
        return data

    assert pty.spawn(command, read) == 0
    assert b"True True" in b"".join(seen)
