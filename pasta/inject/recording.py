"""One recording from launch to sealed trace: environment, target, outputs, seal."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pasta import __version__
from pasta.inject.environment import record_environment
from pasta.inject.icd import missing_device
from pasta.inject.launch import Ended, check_command, run
from pasta.inject.options import RecordOptions
from pasta.inject.output import (
    claim,
    default_name,
    expand_early,
    noted_outputs,
    wait_for_writers,
    write_record,
)

if TYPE_CHECKING:  # imports polars, whose threads must not exist when the target is forked
    from pasta.trace.seal import Summary

Form = Literal["file", "dir"]

#: How long the launcher waits for children of the target that still write when the target has ended.
_STRAGGLER_SECONDS = 2.0


@dataclass
class Recorded:
    """What a recording left: how the target ended, the sealed traces, and lines to tell the user."""

    ended: Ended
    seconds: float
    traces: list[Summary] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Recording:
    """A recording that can be run once; ``form`` is that of the sealed trace, ``environment`` is the target's."""

    def __init__(
        self,
        command: Sequence[str],
        options: RecordOptions,
        *,
        form: Form = "file",
        device: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._options = options
        self._form = form
        self._device = device
        self._added = dict(environment or {})
        self._record: dict[str, Any] = {}
        self._claimed: Path | None = None
        self._registry: Path | None = None

    @property
    def output(self) -> Path | None:
        """Where the trace comes to be, once launched; None where each process of the target names its own."""
        return self._claimed

    def run(self) -> Recorded:
        """Run the target and seal what it left; raises ``PastaError`` when it could not be started."""
        return self.seal(self.launch())

    def launch(self) -> Recorded:
        """Run the target and return how it ended, its traces not yet sealed; raises ``PastaError`` as ``run``."""
        check_command(self._command[0])
        self._registry = registry = Path(tempfile.mkdtemp(prefix="pasta-"))
        try:
            target = record_environment(
                self._options, {**os.environ, **self._added}, self._command, self._device, registry
            )
            variables = {**self._added, **target.variables}
            self._record = {**self._describe(variables), "not_recorded": target.losses}
            pattern = expand_early(self._options.output) if self._options.output else ""
            if pattern:  # refuse before anything starts
                self._claim(pattern, variables)
            began = time.monotonic()
            ended = run(self._command, lambda pid: self._prepare(pid, pattern, variables))
            return Recorded(ended, time.monotonic() - began, notes=target.notes)
        except BaseException:
            if self._claimed is not None:
                shutil.rmtree(self._claimed, ignore_errors=True)
            shutil.rmtree(registry, ignore_errors=True)
            raise

    def seal(self, recorded: Recorded) -> Recorded:
        """Seal the traces of what ``launch`` ran; ``recorded`` is what that returned. Imports polars."""
        assert self._registry is not None
        try:
            self._seal(self._registry, recorded)
        finally:
            shutil.rmtree(self._registry, ignore_errors=True)
        return recorded

    def _describe(self, variables: Mapping[str, str]) -> dict[str, Any]:
        digest = hashlib.sha256("\0".join(sorted(f"{k}={v}" for k, v in os.environ.items())).encode(errors="replace"))
        return {
            "pasta": __version__,
            "command": self._command,
            "directory": str(Path.cwd()),
            "host": platform.node(),
            "environment_sha256": digest.hexdigest(),
            "options": {k: v for k, v in asdict(self._options).items() if v not in (None, "", False)},
            "recording": variables["PASTA_RECORDING"],
            "anchor_ns": int(variables["PASTA_ANCHOR_NS"]),
            "anchor_realtime_ns": time.time_ns()
            - (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(variables["PASTA_ANCHOR_NS"])),
            "versions": {"python": platform.python_version(), "kernel": platform.release()},
        }

    def _claim(self, pattern: str, variables: Mapping[str, str]) -> None:
        self._claimed = claim(pattern, self._options.force, self._record, variables["PASTA_RECORDING"])

    def _prepare(self, pid: int, pattern: str, variables: Mapping[str, str]) -> Mapping[str, str]:
        if not pattern:
            pattern = default_name(self._command, pid).replace("%", "%%")
            self._claim(pattern, variables)
        output = pattern if self._claimed is None else str(self._claimed).replace("%", "%%")
        return {**variables, "PASTA_OUTPUT": output}

    def _seal(self, registry: Path, recorded: Recorded) -> None:
        from pasta.trace.recording import RootStatus
        from pasta.trace.seal import seal

        ended = recorded.ended
        root = RootStatus(ended.pid, exit_status=ended.status, exit_signal=ended.signal)

        directories = noted_outputs(registry)
        if not directories:
            recorded.notes.append(
                "no process touched an accelerator or a framework: nothing was recorded;"
                " pasta doctor tells what this machine has"
            )
        if self._claimed is not None and self._claimed not in directories:
            directories.append(self._claimed)
        for directory in directories:
            write_record(directory, self._record)
            if ended.gave_up:
                recorded.notes.append(f"gave up waiting: {directory} is readable as it is")
                continue
            held = wait_for_writers(directory, _STRAGGLER_SECONDS)
            if held:
                recorded.notes.append(
                    f"{len(held)} process(es) of the program still run: {directory} is readable as it is, and grows"
                )
                continue
            recorded.traces.append(seal(directory, form=self._form, root_status=root))
        if not any(trace.rows.get("kernel") for trace in recorded.traces):
            note = missing_device(self._command, {**os.environ, **self._added})
            recorded.notes += [note] if note else []
