"""The options that select a part of a trace, and how they are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.tools.filters import Filters

_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
#: More numbers than this in one list are a mistake.
_MAX_NUMBERS = 1 << 20

TimeOption = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="WINDOW",
        show_default=False,
        help="Only this time: 5s-9s, 5s- (to the end), -9s (from the beginning), 5s+400ms (for so long).",
    ),
]
RangeOption = Annotated[
    str | None,
    typer.Option(
        "--range", metavar="NAME[@DOMAIN]", show_default=False, help="Only what ran inside the ranges of this name."
    ),
]
KernelOption = Annotated[
    str | None,
    typer.Option("--kernel", metavar="REGEX", show_default=False, help="Only kernels whose name contains a match."),
]
RankOption = Annotated[
    str | None, typer.Option("--rank", metavar="LIST", show_default=False, help="Only these ranks, such as 0,3-5.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="LIST", show_default=False, help="Only these devices, such as 0,2.")
]


def filters_of(
    time: str | None = None,
    range: str | None = None,
    kernel: str | None = None,
    rank: str | None = None,
    device: str | None = None,
) -> Filters:
    """Return the filters that these options ask for; raises ``PastaError`` for one that is not understood."""
    from pasta.tools.filters import Filters

    window = parse_window(time) if time is not None else (None, None)
    return Filters(window, range, kernel, parse_numbers("--rank", rank), parse_numbers("--device", device))


def parse_window(text: str) -> tuple[int | None, int | None]:
    """Return start and end of a window of time in ns; None is open. ``5s-9s``, ``5s-``, ``-9s``, ``5s+400ms``."""
    start, sign, end = re.fullmatch(r"([^-+]*)([-+]?)(.*)", text.replace(" ", ""), re.DOTALL).groups()  # type: ignore[union-attr]
    if not sign or not (start or end) or (sign == "+" and not (start and end)):
        raise _not_a_window(text)
    low, high = (_nanoseconds(part, text) if part else None for part in (start, end))
    if sign == "+" and low is not None and high is not None:
        high += low
    return low, high


def parse_numbers(option: str, text: str | None) -> frozenset[int]:
    """Return the numbers of a list such as ``0,3-5``; None is the empty set."""
    numbers: set[int] = set()
    for part in (text or "").split(",") if text is not None else []:
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first or last - first > _MAX_NUMBERS:
            raise PastaError(f"{option} {text!r} is not a list of numbers", "write it like 0,3-5")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def _nanoseconds(text: str, window: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise _not_a_window(window)
    return round(float(match[1]) * _NANOSECONDS[match[2]])


def _not_a_window(text: str) -> PastaError:
    return PastaError(
        f"--time {text!r} is not a window of time",
        "write it like 5s-9s, 5s-, -9s or 5s+400ms, with ns, us, ms, s, m or h",
    )
