"""What a tool is: a name, the tables it needs, typed options, and a function from a trace to a `Result`."""

from __future__ import annotations

import dataclasses
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import polars as pl

from pasta.tools.result import Result


@runtime_checkable
class TraceView(Protocol):
    """What a tool may ask of a trace: `pasta.trace.Trace`, or a filtered view of one."""

    def table(self, name: str) -> pl.LazyFrame:
        """Return a table of the schema; one without rows has its columns."""

    @property
    def present(self) -> Collection[str]:
        """Names of the tables that have rows."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What was recorded, how and on what."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user about this trace (recovered, merged, ...)."""


@dataclass(frozen=True)
class ToolOptions:
    """Base of a tool's options: a frozen dataclass whose fields become command-line flags (see `option`)."""


def option(default: Any, help: str, *, choices: Sequence[str] = ()) -> Any:
    """Declare a field of `ToolOptions`: its default, its line in ``--help`` and, for text, what it may be."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": tuple(choices)})


@dataclass(frozen=True)
class OptionSpec:
    """A field of `ToolOptions` as the command line needs it; ``type`` is str, int, float or bool."""

    name: str
    flag: str
    type: type
    optional: bool
    default: Any
    help: str
    choices: tuple[str, ...]


def option_specs(options: type[ToolOptions]) -> list[OptionSpec]:
    """Describe the fields of a `ToolOptions` class; raises ``TypeError`` for a type that cannot be a flag."""
    hints = typing.get_type_hints(options)
    return [_spec(field, hints[field.name]) for field in dataclasses.fields(options)]


def _spec(field: dataclasses.Field[Any], hint: Any) -> OptionSpec:
    arguments = typing.get_args(hint)
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    optional = is_union and type(None) in arguments
    plain = [argument for argument in arguments if argument is not type(None)] if is_union else [hint]
    if len(plain) != 1 or plain[0] not in (str, int, float, bool):
        raise TypeError(
            f"option {field.name}: {hint} cannot be a flag; use str, int, float or bool, or one of them | None"
        )
    if field.default is dataclasses.MISSING:
        raise TypeError(f"option {field.name} has no default")
    return OptionSpec(
        name=field.name,
        flag="--" + field.name.replace("_", "-"),
        type=plain[0],
        optional=optional,
        default=field.default,
        help=field.metadata.get("help", ""),
        choices=field.metadata.get("choices", ()),
    )


class Tool(ABC):
    """An analysis. Subclass it, give the class variables, write `run`; never print.

    A tool that combines well may also give `partial`, which runs once for every process of the trace, possibly
    elsewhere, and `combine`, which makes the result from what the partials returned (picklable, and small).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: Tables without which this tool has nothing to say. Others may be read when ``trace.present`` has them.
    needs: ClassVar[frozenset[str] | set[str]] = frozenset()
    Options: ClassVar[type[ToolOptions]] = ToolOptions

    @abstractmethod
    def run(self, trace: TraceView, options: Any) -> Result:
        """Analyse ``trace``; ``options`` is an instance of this tool's ``Options``."""

    def partial(self, trace: TraceView, options: Any) -> Any:
        """Reduce one process's part of the trace; only called when `combine` is given too."""
        raise TypeError(f"tool {self.name} does not work in parts")

    def combine(self, parts: Sequence[Any], options: Any) -> Result:
        """Make the result from all that `partial` returned."""
        raise TypeError(f"tool {self.name} does not work in parts")

    @classmethod
    def works_in_parts(cls) -> bool:
        """Whether this tool gives both `partial` and `combine`."""
        return cls.partial is not Tool.partial and cls.combine is not Tool.combine
