"""The entry point: finds the verb, imports only that verb's module, turns every failure into one line on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pasta import __version__
from pasta.cli.coercion import defer_validators
from pasta.cli.suggest import unknown
from pasta.errors import PastaError

EXIT_USAGE = 2
#: pasta itself failed; the value is that of env(1), timeout(1) and `docker run`.
EXIT_FAILED = 125
EXIT_INTERRUPTED = 128 + 2  # SIGINT
EXIT_PIPE = 128 + 13  # SIGPIPE

# click's base class of wrong usage. typer >= 0.26 carries its own copy of click, so it is reached from here.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]


@dataclass(frozen=True)
class Verb:
    """Where a verb lives and its line in ``pasta --help``, which therefore imports no verb."""

    module: str
    summary: str
    hidden: bool = False


VERBS: dict[str, Verb] = {
    "record": Verb("pasta.cli.record", "Run a program and record what it does on its accelerators."),
    "analyze": Verb("pasta.cli.analyze", "Run one or more analyses on a trace."),
    "diff": Verb("pasta.cli.diff", "Compare two traces: what B costs more or less than A."),
    # Shown once `pasta.report` can write html; a test tells when.
    "query": Verb("pasta.cli.query", "Run SQL over the tables of a trace."),
    "info": Verb("pasta.cli.info", "Show what a trace holds, what it lost and what it could not see."),
    "import": Verb("pasta.cli.import_", "Turn another profiler's files into a trace."),
    "export": Verb("pasta.cli.export", "Turn a trace into Parquet, CSV or Perfetto files."),
    "merge": Verb("pasta.cli.merge", "Join the traces of several processes or ranks into one."),
    "tools": Verb("pasta.cli.tools", "List the analyses and their options."),
    "schema": Verb("pasta.cli.schema", "List the tables and columns of a trace."),
    "doctor": Verb("pasta.cli.doctor", "Check this machine, and say how to fix what is not ready."),
    "env": Verb("pasta.cli.env", "Print the variables that record sets, for containers and launchers."),
    "demo": Verb("pasta.cli.demo", "Record and analyse a small program on whatever device is here."),
    "dump": Verb("pasta.cli.dump", "Print every record of a shard as text.", hidden=True),
}


class _ReaderGone(Exception):
    """Nobody reads standard output any more, which is how ``| head`` ends."""


class _Habits:
    """What the group and its verbs have in common: help that fits any terminal, and a fast start."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # click gives the first column 30 columns of any terminal.
        formatter.write_dl = partial(formatter.write_dl, col_max=min(30, formatter.width // 3))
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        defer_validators(parameters)
        return parameters


class VerbCommand(_Habits, TyperCommand):
    """A verb."""


class Verbs(_Habits, TyperGroup):
    """The group of all verbs: names and summaries come from ``VERBS``, a module only for the verb that runs."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(VERBS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Return what help and completion need of a verb, without importing it."""
        verb = VERBS.get(cmd_name)
        return TyperCommand(cmd_name, short_help=verb.summary, hidden=verb.hidden) if verb else None

    def resolve_command(  # type: ignore[override]
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, TyperCommand | None, list[str]]:
        name, arguments = args[0], args[1:]
        if name in VERBS:
            return name, self._load(ctx, name, arguments), arguments
        if ctx.resilient_parsing:
            return None, None, arguments
        raise unknown("verb", name, [n for n, verb in VERBS.items() if not verb.hidden], "pasta --help")

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error  # typer would turn it into exit status 1

    @staticmethod
    def _load(ctx: typer.Context, name: str, arguments: list[str]) -> TyperCommand:
        try:
            return load(name, arguments)
        except PastaError:
            if not ctx.resilient_parsing:
                raise
            return load(name)  # completion of a line that is not right yet


def load(name: str, arguments: Sequence[str] = ()) -> TyperCommand:
    """Import the verb ``name`` and return its command, with the options that ``arguments`` call for."""
    module = import_module(VERBS[name].module)
    function = module.build(list(arguments)) if hasattr(module, "build") else module.command
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"cls": VerbCommand, "hidden": VERBS[name].hidden, **getattr(module, "SETTINGS", {})}
    app.command(name, **settings)(function)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


def group() -> TyperGroup:
    """Return the whole command line as one command."""
    # click's own help is never narrower than 50 columns nor wider than 80.
    width = min(max(shutil.get_terminal_size().columns - 1, 30), 100)
    settings = {"help_option_names": ["-h", "--help"], "terminal_width": width}
    app = typer.Typer(cls=Verbs, rich_markup_mode=None, context_settings=settings)
    app.callback()(_pasta)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"pasta {__version__}")
        raise typer.Exit


def _pasta(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Profile programs that run on accelerators.

    Begin with: pasta record -- PROGRAM, then: pasta analyze TRACE.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; messages go to stderr, never a traceback."""
    try:
        status = group().main(args=list(arguments) or ["--help"], prog_name="pasta", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except PastaError as error:
        return _fail(str(error), error.exit_code)
    except _UsageError as error:
        return _fail(_usage(error), EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (_ReaderGone, BrokenPipeError):
        _drop_output()
        return EXIT_PIPE
    except OSError as error:
        _drop_output()
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", EXIT_USAGE)
    except BaseException as error:
        if isinstance(error, (SystemExit, GeneratorExit)) or os.environ.get("PASTA_DEBUG"):
            raise
        return _fail(_unexpected(error), EXIT_FAILED)


def _drop_output() -> None:
    """Let go of what Python still holds for stdout: it would be written at exit, and fail with a status of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> int:
    print(f"pasta: error: {message}", file=sys.stderr)
    return status


def _usage(error: Any) -> str:
    """Say what is wrong with the command line and where to read about it (``error`` is click's UsageError)."""
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    where = error.ctx.command_path if error.ctx is not None else "pasta"
    return f"{message}; see {where} --help"


def _unexpected(error: BaseException) -> str:
    first_line = next(iter(str(error).splitlines()), "")
    what = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    if type(error).__module__.startswith(("polars", "pyo3")):
        return f"cannot read the data ({what}); the trace may be damaged: PASTA_DEBUG=1 shows where"
    return f"internal error ({what}); set PASTA_DEBUG=1 for the traceback and report it"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line of this process, and exit."""
    # A parent may have closed them (`>&-`), and a terminal may not have every character.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
