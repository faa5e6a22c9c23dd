"""pasta record: run a program and record what it does on its accelerators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pasta.cli.main import VerbCommand
from pasta.errors import PastaError
from pasta.inject.options import MEMORY_DEFAULT, MEMORY_REDUCERS, RecordOptions, trace_help

if TYPE_CHECKING:
    from pasta.inject.recording import Recorded
    from pasta.trace.seal import Summary



class RecordCommand(VerbCommand):
    """The command, with ``--memory`` that may stand alone: typer has no options with an optional value."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Give a ``--memory`` that stands before the program its default."""
        takes_value = {
            name for p in self.params for name in p.opts if not (getattr(p, "is_flag", False) or p.opts == [p.name])
        }
        args, at = list(args), 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == "--memory":
                args[at] = f"--memory={MEMORY_DEFAULT}"
            at += 2 if args[at] in takes_value else 1
        rest: list[str] = super().parse_args(ctx, args)
        return rest


#: Everything behind the command belongs to it. ``ignore_unknown_options`` would let ``record --bogus`` run.
SETTINGS = {"cls": RecordCommand, "context_settings": {"allow_interspersed_args": False}}

_RECORDING, _SELECTING, _RANKS = "Recording", "Selecting what is recorded", "Several processes"
_MEMORY = "Memory accesses"


def _show_trace_help(value: str | None) -> str | None:
    if value == "help":
        print(trace_help())
        raise typer.Exit
    return value


def _load_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the ``[record]`` table of a TOML file the defaults: command line > environment > file > default."""
    if path is None:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            table = tomllib.load(file).get("record", {})
    except OSError as error:
        raise PastaError(f"cannot read {path}: {error.strerror}", "check --config") from None
    except tomllib.TOMLDecodeError as error:
        raise PastaError(f"{path} is not TOML: {error}", "correct it") from None
    known = {str(parameter.name): parameter for parameter in ctx.command.params}
    defaults: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known or name in ("command", "config"):
            raise PastaError(f"{path}: record has no option {key}", "pasta record --help lists them")
        defaults[name] = value
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return path


def _option(*names: str, help: str, panel: str = _RECORDING, env: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, envvar=env, show_envvar=False, **more)


def command(
    program: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.")],
    output: Annotated[
        str,
        _option(
            "--output", "-o", env="PASTA_OUTPUT",
            help="Trace to write. %p pid, %h host, %r rank, %l local rank, %n lowest free number, %q{NAME} "
            "environment, %%. Default: NAME-PID.pasta.",
        ),
    ] = "",
    force_overwrite: Annotated[
        bool, _option("--force-overwrite", "-f", help="Replace a trace that is there.", env="PASTA_FORCE")
    ] = False,
    trace: Annotated[
        str | None,
        _option(
            "--trace", "-t", env="PASTA_TRACE", panel=_SELECTING, callback=_show_trace_help,
            help="What to record, a comma list; --trace=help lists what there is. Default: all.",
        ),
    ] = None,
    capture_range: Annotated[
        str | None,
        _option(
            "--capture-range", "-c", env="PASTA_CAPTURE_RANGE", panel=_SELECTING,
            help="Collect only inside: none, range, cudaProfilerApi.",
        ),
    ] = None,
    range_name: Annotated[
        str | None,
        _option(
            "--range", "-p", env="PASTA_RANGE", panel=_SELECTING, metavar="NAME[@DOMAIN]",
            help="The range of --capture-range=range. Default: any.",
        ),
    ] = None,
    capture_range_end: Annotated[
        str | None,
        _option(
            "--capture-range-end", env="PASTA_CAPTURE_RANGE_END", panel=_SELECTING,
            help="After the first range: none (collect every range), stop, repeat[:N].",
        ),
    ] = None,
    delay: Annotated[
        float | None,
        _option(
            "--delay", "-y", env="PASTA_DELAY", panel=_SELECTING, min=0, metavar="SECONDS",
            help="Begin to collect this long after the start.",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        _option(
            "--duration", "-d", env="PASTA_DURATION", panel=_SELECTING, min=0, metavar="SECONDS",
            help="Collect for this long; the program runs on.",
        ),
    ] = None,
    kernels: Annotated[
        str | None,
        _option(
            "--kernels", "-k", env="PASTA_KERNELS", panel=_SELECTING, metavar="REGEX",
            help="Record only kernels whose name contains a match.",
        ),
    ] = None,
    launch_skip: Annotated[
        int | None,
        _option(
            "--launch-skip", env="PASTA_LAUNCH_SKIP", panel=_SELECTING, min=0, metavar="N",
            help="Skip the first N launches (of those that --kernels selects).",
        ),
    ] = None,
    launch_count: Annotated[
        int | None,
        _option(
            "--launch-count", env="PASTA_LAUNCH_COUNT", panel=_SELECTING, min=0, metavar="N",
            help="Record N launches, then no more.",
        ),
    ] = None,
    cuda_graph_trace: Annotated[
        str | None,
        _option(
            "--cuda-graph-trace", env="PASTA_CUDA_GRAPH_TRACE", panel=_SELECTING, metavar="LEVEL",
            help="What is recorded of a CUDA graph's launch: node, each of its kernels (default); graph, one row.",
        ),
    ] = None,
    cuda_latency_timestamps: Annotated[
        bool,
        _option(
            "--cuda-latency-timestamps", env="PASTA_CUDA_LATENCY_TIMESTAMPS", panel=_SELECTING,
            help="Also when each CUDA kernel was queued and submitted; costs time at every launch.",
        ),
    ] = False,
    device: Annotated[
        str | None,
        _option("--device", env="PASTA_DEVICE", help="cpu: show the program the CPU OpenCL device of the cpu extra."),
    ] = None,
    memory: Annotated[
        str | None,
        _option(
            "--memory", env="PASTA_MEMORY", panel=_MEMORY, metavar="[=LIST]",
            help=f"Measure memory accesses on the device: {', '.join(MEMORY_REDUCERS)} or all. "
            f"Alone: {MEMORY_DEFAULT}.",
        ),
    ] = None,
    sample: Annotated[
        str | None,
        _option(
            "--sample", env="PASTA_SAMPLE", panel=_MEMORY, metavar="N[:K]",
            help="Measure the first N launches of each kernel and grid, then every K-th (1000).",
        ),
    ] = None,
    memory_buffer: Annotated[
        str | None,
        _option("--memory-buffer", env="PASTA_MEMORY_BUFFER", panel=_MEMORY, metavar="SIZE",
                help="Device memory for the results: of a CUDA context, of an OpenCL process; 256M."),
    ] = None,
    passes: Annotated[
        str | None,
        _option(
            "--passes", env="PASTA_PASSES", panel=_MEMORY, metavar="timing,memory",
            help="Run the program twice, for times and for memory accesses, and join both in one trace.",
        ),
    ] = None,
    torch_modules: Annotated[
        bool, _option("--torch-modules", env="PASTA_TORCH_MODULES", help="Record the module path of operators.")
    ] = False,
    env: Annotated[
        list[str] | None, _option("--env", "-e", metavar="A=B", help="Set a variable for the program; repeatable.")
    ] = None,
    directory: Annotated[
        bool, _option("--dir", help="Write a directory of Parquet files instead of one file.", env="PASTA_DIR")
    ] = False,
    buffer_size: Annotated[
        str | None,
        _option("--buffer-size", env="PASTA_BUFFER_SIZE", metavar="SIZE", help="Memory for events a process; 64M."),
    ] = None,
    max_size: Annotated[
        str | None,
        _option("--max-size", env="PASTA_MAX_SIZE", metavar="SIZE", help="Stop to record at this much a process."),
    ] = None,
    ranks: Annotated[
        str | None, _option("--ranks", env="PASTA_RANKS", panel=_RANKS, help="Record only these ranks: 0,3-5.")
    ] = None,
    rank_env: Annotated[
        str | None,
        _option("--rank-env", env="PASTA_RANK_ENV", panel=_RANKS, metavar="NAME", help="Variable that holds the rank."),
    ] = None,
    stats: Annotated[bool, _option("--stats", help="Print the workload summary on stderr when done.")] = False,
    quiet: Annotated[bool, _option("--quiet", "-q", help="Say nothing on stderr unless something failed.")] = False,
    config: Annotated[
        Path | None,
        _option(
            "--config", is_eager=True, callback=_load_config, metavar="FILE", env="PASTA_CONFIG",
            help="TOML file whose [record] table gives defaults.",
        ),
    ] = None,
) -> NoReturn:  # fmt: skip
    """Run a program and record what it does on its accelerators.

    Exits as the program did; 125 when pasta itself failed, 126 when the program is not executable, 127 when it
    is not found.
    """
    if passes is not None:
        from pasta.inject.passes import check_passes

        check_passes(passes)
        memory = memory or MEMORY_DEFAULT
    options = RecordOptions(
        output=output, force=force_overwrite, trace=trace, capture_range=capture_range, range_name=range_name,
        capture_range_end=capture_range_end, delay=delay, duration=duration, kernels=kernels,
        launch_skip=launch_skip, launch_count=launch_count, buffer_size=buffer_size, max_size=max_size,
        ranks=ranks, rank_env=rank_env, torch_modules=torch_modules, cuda_graph_trace=cuda_graph_trace,
        cuda_latency_timestamps=cuda_latency_timestamps, memory=memory, sample=sample, memory_buffer=memory_buffer,
    )  # fmt: skip
    if device not in (None, "cpu"):
        raise PastaError(f"--device={device} is unknown", "it takes cpu")
    # Imported here, not above: `pasta record`'s own start must stay short, and fork before any thread exists.
    from pasta.inject.launch import die_like
    from pasta.inject.recording import Form, Recording

    form: Form = "dir" if directory else "file"
    environment = _environment(env or [])
    if passes is None:
        recorded = Recording(program, options, form=form, device=device, environment=environment).run()
    else:
        from pasta.inject.passes import record_passes

        recorded = record_passes(program, options, form=form, device=device, environment=environment)
    if not quiet:
        report(recorded, stats)
    die_like(recorded.ended)


def _environment(assignments: list[str]) -> dict[str, str]:
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise PastaError(f"--env {assignment} is not an assignment", "write NAME=VALUE")
        pairs[name] = value
    return pairs


def report(recorded: Recorded, stats: bool = False) -> None:
    """Tell on stderr what was recorded, what was lost, and what to type next."""

    def say(text: str) -> None:
        print(f"pasta: {text}", file=sys.stderr)

    for note in recorded.notes:
        say(note)
    if stats:
        _print_stats(recorded)
    for trace in recorded.traces:
        for note in trace.notes:
            say(note)
        say(_summary_line(trace, recorded.seconds))
    if recorded.traces:
        say(f"next: pasta analyze {' '.join(_shown(trace.path) for trace in recorded.traces)}")


def _shown(path: Path) -> str:
    """Return ``path`` as one would type it: relative when it is below the current directory."""
    import os
    import shlex

    relative = os.path.relpath(path)
    return shlex.quote(str(path) if relative.startswith("..") else relative)


def _summary_line(trace: Summary, seconds: float) -> str:
    """Return the line that names the trace: what is in it, how large it is, what was lost."""
    shown = [(trace.rows.get(table, 0), noun) for table, noun in _COUNTED]
    counts = [f"{count:,} {noun}".replace(",", " ") for count, noun in shown if count]
    size = trace.bytes / 1000
    sizes = f"{size / 1000:.1f} MB" if size >= 1000 else f"{size:.0f} kB"
    lost = sum(loss.get("records") or 0 for loss in trace.losses)
    if trace.losses:
        losses = f"{lost:,} records lost".replace(",", " ") if lost else "with losses"
        losses += ", see pasta info"
    else:
        losses = "nothing lost"
    return "  ".join([_shown(trace.path), f"{seconds:.1f} s", *(counts or ["no events"]), sizes, losses])


_COUNTED = (("kernel", "kernels"), ("memcpy", "copies"), ("op", "operators"), ("tensor", "tensor events"))


def _print_stats(recorded: Recorded) -> None:
    from pasta.report import render
    from pasta.tools.runner import run
    from pasta.trace import Trace

    for summary in recorded.traces:
        with Trace.open(summary.path) as trace:
            print(render(run("workload", trace), "table"), file=sys.stderr)
