"""Kernel names without what the compiler adds: template arguments, parameters and the return type."""

from __future__ import annotations

import polars as pl

_ANONYMOUS = "(anonymous namespace)"


def base_name(name: str) -> str:
    """Return the qualified function name: ``void ns::f<int, 4>(float*)`` becomes ``ns::f``.

    What does not look like a C++ function is returned as it is; ``operator<`` and ``(anonymous namespace)`` stay.
    """
    if "<" not in name and "(" not in name:
        return name
    kept: list[str] = []
    depth = index = 0
    while index < len(name):
        if depth == 0 and name.startswith("operator", index):
            end = index + len("operator")
            if name.startswith("()", end):
                end += 2
            while end < len(name) and name[end] in "<>=!+-*/%&|^~[]":
                end += 1
            kept.append(name[index:end])
            index = end + name.startswith(" <", end)  # `operator< <int>`: the space belongs to the arguments
            continue
        if depth == 0 and name.startswith(_ANONYMOUS, index):
            kept.append(_ANONYMOUS)
            index += len(_ANONYMOUS)
            continue
        character = name[index]
        if character == "(" and depth == 0 and kept:
            if kept[-1] == " ":  # no parameters: these follow the name at once
                return name
            break
        if character == ">" and depth:
            depth -= 1
        elif character == "<":
            depth += 1
        elif depth == 0:
            kept.append(character)
        index += 1
    plain = "".join(kept).replace(_ANONYMOUS, "\0").strip().split(" ")[-1].replace("\0", _ANONYMOUS)
    return plain or name


def base_names(names: pl.LazyFrame, column: str) -> pl.Expr:
    """Return ``column`` with every name replaced by its base; ``names`` is the frame that holds the column."""
    unique = names.select(pl.col(column).drop_nulls().unique()).collect()[column]
    if unique.is_empty():
        return pl.col(column)
    return pl.col(column).replace_strict(
        unique, pl.Series([base_name(name) for name in unique], dtype=pl.String), default=None, return_dtype=pl.String
    )
