"""Starts the target and waits for it: exec failures, signals and exit status as a shell user expects.

    ended = run(["python", "train.py"], lambda pid: {"PASTA_OUTPUT": f"train-{pid}.pasta"})

Nothing is imported here that starts threads: the target is forked from this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from pasta.errors import PastaError

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
NOT_EXECUTABLE = 126
NOT_FOUND = 127


@dataclass(frozen=True)
class Ended:
    """How the target ended: exactly one of ``status`` (exit status) and ``signal`` is set; never by ``gave_up``.

    ``interrupted``: Ctrl-C was pressed meanwhile, whatever the target made of it.
    """

    pid: int
    status: int | None = None
    signal: int | None = None
    gave_up: bool = False
    interrupted: bool = False


def run(command: Sequence[str], prepare: Callable[[int], Mapping[str, str]]) -> Ended:
    """Run ``command`` and wait for it.

    ``prepare`` is called with the pid, before anything of the command runs, and returns the variables to add to
    its environment; an exception from it abandons the launch. Ctrl-C goes to the target (the terminal sends it
    to both); the second one gives up waiting. SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded. Raises
    ``PastaError`` with exit code 126 or 127 when the command cannot be executed.
    """
    go_read, go_write = os.pipe()
    report_read, report_write = os.pipe()  # close-on-exec: a successful exec closes it without a word
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(go_write)
        _exec(command, go_read, report_write)
    os.close(go_read)
    os.close(report_write)
    waiter = _Waiter(pid)
    try:
        with os.fdopen(go_write, "wb") as go:
            go.write(b"".join(os.fsencode(f"{k}={v}") + b"\0" for k, v in prepare(pid).items()) + b"\0")
    except BaseException:
        os.waitpid(pid, 0)
        raise
    return waiter.wait(command, report_read)


def _exec(command: Sequence[str], go: int, report: int) -> NoReturn:
    """Wait for the variables, then become the target. An errno on ``report`` says why that failed."""
    failure = errno.EINVAL
    try:
        with os.fdopen(go, "rb") as source:
            text = source.read()
        if not text.endswith(b"\0"):  # abandoned
            os._exit(0)
        # Python ignores SIGPIPE and SIGXFSZ; an ignored signal stays so across exec.
        for name in ("SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        added = dict(os.fsdecode(entry).split("=", 1) for entry in text.split(b"\0") if entry)
        os.execvpe(command[0], list(command), {**os.environ, **added})
    except OSError as error:
        failure = error.errno or errno.EINVAL
    finally:
        os.write(report, struct.pack("i", failure))
        os._exit(NOT_FOUND)


class _Waiter:
    """Waits for one child while passing signals on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._interrupts = 0

    def wait(self, command: Sequence[str], report: int) -> Ended:
        handled = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        handled[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
        try:
            failure = os.read(report, 4)
            os.close(report)
            try:
                _, status = os.waitpid(self._pid, 0)
            except _GaveUp:
                return Ended(self._pid, gave_up=True, interrupted=True)
        finally:
            for number, handler in handled.items():
                signal.signal(number, handler)
        if failure:
            raise _exec_error(command[0], struct.unpack("i", failure)[0])
        if os.WIFSIGNALED(status):
            return Ended(self._pid, signal=os.WTERMSIG(status), interrupted=self._interrupts > 0)
        return Ended(self._pid, status=os.WEXITSTATUS(status), interrupted=self._interrupts > 0)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise _GaveUp


class _GaveUp(Exception):
    """The user pressed Ctrl-C a second time."""


def check_command(program: str) -> None:
    """Raise the error that executing ``program`` would end in, before anything is touched for it."""
    if shutil.which(program) is None:
        found = any(os.path.exists(os.path.join(folder, program)) for folder in _search_path(program))
        raise _exec_error(program, errno.EACCES if found else errno.ENOENT)


def _search_path(program: str) -> Sequence[str]:
    return [""] if os.path.dirname(program) else os.get_exec_path()


def _exec_error(program: str, number: int) -> PastaError:
    if number in (errno.ENOENT, errno.ENOTDIR):
        return PastaError(f"{program}: command not found", "check its name and PATH", exit_code=NOT_FOUND)
    fix = "make it executable (chmod +x), or name its interpreter"
    return PastaError(f"{program}: {os.strerror(number)}", fix, exit_code=NOT_EXECUTABLE)


def die_like(ended: Ended) -> NoReturn:
    """End this process as the target ended: its exit status, or its signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if ended.signal is not None:
        if ended.signal != signal.SIGKILL:
            signal.signal(ended.signal, signal.SIG_DFL)
        # The target has left its core file; ours would only replace it.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.kill(os.getpid(), ended.signal)
    os._exit(128 + ended.signal if ended.signal is not None else (ended.status or 0))
