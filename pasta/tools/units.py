"""Numbers as people write them: one unit that suits, and thousands set apart by spaces."""

from __future__ import annotations

from collections.abc import Sequence

#: What each unit may be shown as, smallest first: (size of one, its name).
SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB")),
    "bytes/s": ((1, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")),
}


def scale_of(values: Sequence[float], unit: str) -> tuple[float, str]:
    """Return (size, name) of the largest scale of ``unit`` that the largest of ``values`` reaches."""
    largest = max((abs(value) for value in values), default=0.0)
    scales = SCALES[unit]
    return next(((scale, name) for scale, name in reversed(scales) if largest >= scale), scales[0])


def grouped(value: float, decimals: int = 0) -> str:
    """Return a number with its thousands set apart: ``8 431``."""
    return f"{value:,.{decimals}f}".replace(",", " ")


def plural(number: float, noun: str) -> str:
    """Return ``1 launch`` or ``8 431 launches``."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{grouped(number, 0 if float(number).is_integer() else 1)} {noun}{ending}"


def duration(ns: float) -> str:
    """Return a time: ``29.0 ms``."""
    return _single(ns, "ns")


def size(number: float) -> str:
    """Return a size: ``1.50 GiB``."""
    return _single(number, "bytes")


def _single(value: float, unit: str) -> str:
    scale, name = scale_of([value], unit)
    decimals = 0 if scale == 1 else 1 if abs(value / scale) >= 10 else 2
    return f"{grouped(value / scale, decimals)} {name}"
