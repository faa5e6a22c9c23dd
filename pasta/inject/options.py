"""The options of a recording: what the command line, the environment and a TOML file can say.

Each one reaches the injected library as a ``PASTA_*`` variable; the library's own parser is
``csrc/session/options.cpp``. What is wrong is refused here, before the target starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pasta.errors import PastaError

#: What ``-t/--trace`` accepts, and what each name records.
TRACE_GROUPS: dict[str, str] = {
    "kernel": "kernel launches, collectives",
    "api": "calls of the device runtimes that move, launch, create or wait (api=all: every call)",
    "memory": "copies, fills, memory objects created and freed",
    "sync": "waits of the host for a device",
    "uvm": "unified memory: migrations, faults",
    "op": "framework operators",
    "tensor": "framework allocations",
    "range": "annotations: NVTX, roctx, record_function, pasta.range",
}

_DEVICE = ("kernel", "api", "memory", "sync")

#: Names that users of other profilers type.
TRACE_ALIASES: dict[str, tuple[str, ...]] = {
    "cuda": (*_DEVICE, "uvm"),
    "hip": (*_DEVICE, "uvm"),
    "opencl": _DEVICE,
    "nvtx": ("range",),
    "roctx": ("range",),
    "torch": ("op", "tensor"),
    "all": tuple(TRACE_GROUPS),
    "none": (),
}

#: What ``--memory`` measures on the device; which of these a device can do is in the documentation.
MEMORY_REDUCERS: dict[str, str] = {
    "objects": "per launch and memory object: loads, stores, atomics, bytes, pages touched",
    "sites": "per instruction: executions and bytes",
    "lines": "64-byte lines touched (OpenCL)",
    "blocks": "accesses per 2 MiB block, for hotness",
    "shared": "sites of shared (local) memory too",
    "divergence": "active lanes per instruction",
    "coalescing": "sectors moved and needed, bank conflicts (OpenCL, slow; on CUDA part of sites)",
    "trace": "every access, for checks: slow and bounded; CUDA keeps them, for analyze --from trace",
}
#: ``--memory`` without a list.
MEMORY_DEFAULT = "objects,sites,lines"

_SIZE = re.compile(r"\d+[KMGkmg]?")
_RANKS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_SAMPLE = re.compile(r"[1-9]\d*(:[1-9]\d*)?")
_RANGE_END = re.compile(r"none|stop|repeat(:\d+)?")


@dataclass(frozen=True)
class RecordOptions:
    """Options of one recording; ``None`` leaves the library's default."""

    output: str = ""
    force: bool = False
    trace: str | None = None
    capture_range: str | None = None
    range_name: str | None = None
    capture_range_end: str | None = None
    delay: float | None = None
    duration: float | None = None
    kernels: str | None = None
    launch_skip: int | None = None
    launch_count: int | None = None
    cuda_graph_trace: str | None = None
    cuda_latency_timestamps: bool = False
    buffer_size: str | None = None
    max_size: str | None = None
    ranks: str | None = None
    rank_env: str | None = None
    torch_modules: bool = False
    memory: str | None = None
    sample: str | None = None
    memory_buffer: str | None = None

    def __post_init__(self) -> None:
        """Check every value; raises ``PastaError`` that names the option and what it takes."""
        if self.kernels is not None:
            try:
                re.compile(self.kernels)
            except re.error as error:
                raise PastaError(f"--kernels is not a regular expression: {error}", "correct it") from None
        _check("--buffer-size", self.buffer_size, _SIZE, "a size such as 64M")
        _check("--max-size", self.max_size, _SIZE, "a size such as 2G")
        _check("--ranks", self.ranks, _RANKS, "a list such as 0,3-5")
        _check("--capture-range-end", self.capture_range_end, _RANGE_END, "none, stop, repeat or repeat:N")
        _check("--sample", self.sample, _SAMPLE, "N or N:K, the first N launches of each kernel and then every K-th")
        _check("--memory-buffer", self.memory_buffer, _SIZE, "a size such as 256M")
        for word in (self.memory or "").split(","):
            if word not in ("", "all", "floor", *MEMORY_REDUCERS):  # floor: patches that do nothing, for benchmarks
                raise PastaError(f"--memory={word} is unknown", f"it takes {', '.join(MEMORY_REDUCERS)} or all")
        if self.sample is not None and self.memory is None:
            raise PastaError("--sample chooses the launches that --memory measures", "add --memory")
        if self.capture_range not in (None, "none", "range", "cudaProfilerApi"):
            raise PastaError(
                f"--capture-range={self.capture_range} is unknown", "it takes none, range or cudaProfilerApi"
            )
        if self.cuda_graph_trace not in (None, "node", "graph"):
            raise PastaError(f"--cuda-graph-trace={self.cuda_graph_trace} is unknown", "it takes node or graph")
        if self.range_name is not None and self.capture_range in (None, "none"):
            raise PastaError("--range needs to know when to look for it", "add --capture-range=range")

    def variables(self) -> Iterator[tuple[str, str]]:
        """Yield the ``PASTA_*`` variables that carry these options into the target."""
        values: dict[str, object] = {
            "PASTA_OUTPUT": self.output,
            "PASTA_FORCE": 1 if self.force else None,
            "PASTA_TRACE": None if self.trace is None else ",".join(expand_trace(self.trace)) or "none",
            "PASTA_CAPTURE_RANGE": self.capture_range,
            "PASTA_RANGE": self.range_name,
            "PASTA_CAPTURE_RANGE_END": self.capture_range_end,
            "PASTA_DELAY": self.delay,
            "PASTA_DURATION": self.duration,
            "PASTA_KERNELS": self.kernels,
            "PASTA_LAUNCH_SKIP": self.launch_skip,
            "PASTA_LAUNCH_COUNT": self.launch_count,
            "PASTA_CUDA_GRAPH_TRACE": self.cuda_graph_trace,
            "PASTA_CUDA_LATENCY_TIMESTAMPS": 1 if self.cuda_latency_timestamps else None,
            "PASTA_BUFFER_SIZE": self.buffer_size,
            "PASTA_MAX_SIZE": self.max_size,
            "PASTA_RANKS": self.ranks,
            "PASTA_RANK_ENV": self.rank_env,
            "PASTA_MEMORY": self.memory,
            "PASTA_SAMPLE": self.sample,
            "PASTA_MEMORY_BUFFER": self.memory_buffer,
            "PASTA_TORCH_MODULES": 1 if self.torch_modules else None,
        }
        for name, value in values.items():
            if value is not None:
                yield name, str(value)


def expand_trace(text: str) -> Sequence[str]:
    """Return the trace groups that ``text`` (``kernel,torch,api=all``) names, aliases replaced, in order.

    Raises ``PastaError`` for an unknown name.
    """
    names: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word in TRACE_ALIASES:
            names += TRACE_ALIASES[word]
        elif word in TRACE_GROUPS or word == "api=all":
            names.append(word)
        else:
            import difflib

            close = difflib.get_close_matches(word, [*TRACE_GROUPS, *TRACE_ALIASES], n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise PastaError(f"--trace={word} is unknown", f"{hint}--trace=help lists what there is")
    return list(dict.fromkeys(names))


def trace_help() -> str:
    """Return the text of ``--trace=help``."""
    groups = [f"  {name:<8} {meaning}" for name, meaning in TRACE_GROUPS.items()]
    aliases = [f"  {name:<8} {','.join(names) or 'nothing'}" for name, names in TRACE_ALIASES.items()]
    return "\n".join(["What can be traced:", *groups, "", "Aliases:", *aliases])


def _check(option: str, value: str | None, pattern: re.Pattern[str], takes: str) -> None:
    if value is not None and not pattern.fullmatch(value):
        raise PastaError(f"{option}={value} is not understood", f"it takes {takes}")
