"""Fit columns of text into a width without wrapping a line and without cutting a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, get_character_cell_size

from pasta.report.cells import Cells

_GAP = "  "
#: A text column is not cut below this many terminal columns; other columns are left out first.
_LEAST_TEXT = 20
#: Shares of a cut name that its beginning keeps, tried until the cut names of a column differ.
_HEAD_SHARES = (0.4, 0.25, 0.6, 0.1, 0.8)


@dataclass(frozen=True)
class Layout:
    """Lines of equal meaning to the input: a heading, rows, and the headings of columns that had no room."""

    heading: str
    rows: list[str]
    left_out: list[str]


def lay_out(columns: Sequence[Cells], width: int | None, unicode: bool = True) -> Layout:
    """Align columns, two spaces apart. ``width`` None means that lines may be as long as they are."""
    widths = [max([cell_len(c.heading), *(cell_len(text) for text in c.texts)]) for c in columns]
    shown = list(range(len(columns)))
    if width is not None:
        shown = _shown(columns, widths, width)
        _shrink([i for i in shown if not columns[i].right], shown, widths, width)
    cut = [_cut_column(columns[i], widths[i], unicode) for i in shown]
    sizes = [widths[i] for i in shown]
    return Layout(
        heading=_line([c.heading for c in cut], cut, sizes),
        rows=[_line(texts, cut, sizes) for texts in zip(*(c.texts for c in cut), strict=True)],
        left_out=[c.heading for i, c in enumerate(columns) if i not in shown and c.heading],
    )


def cut_middle(text: str, width: int, unicode: bool = True, head_share: float = _HEAD_SHARES[0]) -> str:
    """Shorten ``text`` to ``width`` terminal columns by leaving out its middle: names differ at their ends."""
    if cell_len(text) <= width:
        return text
    mark = "…" if unicode else ".."
    room = width - len(mark)
    if room < 2:
        return _prefix(text, width)
    head = _prefix(text, max(1, round(room * head_share)))
    tail = _prefix(text[::-1], room - cell_len(head))[::-1]
    return f"{head}{mark}{tail}"


def _prefix(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width:
            return text[:index]
    return text


def _shown(columns: Sequence[Cells], widths: Sequence[int], width: int) -> list[int]:
    """Choose the columns that fit when text is as short as it may get; the first always stays."""
    shown: list[int] = []
    used = 0
    for index, column in enumerate(columns):
        least = widths[index] if column.right else min(widths[index], _LEAST_TEXT)
        used += least + (len(_GAP) if shown else 0)
        if shown and used > width:
            break
        shown.append(index)
    return shown


def _shrink(texts: list[int], shown: list[int], widths: list[int], width: int) -> None:
    """Take what is too much from the text columns, the widest first; then from the only column left."""
    excess = sum(widths[i] for i in shown) + len(_GAP) * (len(shown) - 1) - width
    while excess > 0:
        widest = max(texts, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _LEAST_TEXT:
            break
        others = [widths[i] for i in texts if i != widest and widths[i] < widths[widest]]
        step = min(excess, widths[widest] - max([_LEAST_TEXT, *others], default=_LEAST_TEXT))
        step = max(step, 1)
        widths[widest] -= step
        excess -= step
    if excess > 0 and len(shown) == 1:
        widths[shown[0]] = max(width, 1)


def _cut_column(column: Cells, width: int, unicode: bool) -> Cells:
    if column.right:
        texts = [text if cell_len(text) <= width else "#" * width for text in column.texts]
        return Cells(cut_middle(column.heading, width, unicode), texts, right=True)
    return Cells(cut_middle(column.heading, width, unicode), _cut_names(column.texts, width, unicode), right=False)


def _cut_names(names: Sequence[str], width: int, unicode: bool) -> list[str]:
    """Cut the names of a column so that those that differ still do, where the width allows it."""
    distinct = list(dict.fromkeys(names))
    for share in _HEAD_SHARES:
        cut = {name: cut_middle(name, width, unicode, share) for name in distinct}
        if len(set(cut.values())) == len(distinct):
            break
    else:
        cut = {name: cut_middle(name, width, unicode) for name in distinct}
        groups: dict[str, list[str]] = {}
        for name, text in cut.items():
            groups.setdefault(text, []).append(name)
        for group in groups.values():
            if len(group) > 1:
                first, last = min(group), max(group)  # what these two share, all share
                differs = next((i for i, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), 0)
                cut.update({name: _cut_around(name, differs, width, unicode) for name in group})
    return [cut[name] for name in names]


def _cut_around(name: str, position: int, width: int, unicode: bool) -> str:
    """Shorten ``name`` to its beginning and what stands from ``position`` on, where it begins to differ."""
    mark = "…" if unicode else ".."
    head = _prefix(name, width // 4)
    tail = name[max(position - width // 8, len(head)) :]
    return f"{head}{mark}{_prefix(tail, width - cell_len(head) - len(mark))}"


def _line(texts: Sequence[str], columns: Sequence[Cells], widths: Sequence[int]) -> str:
    padded = []
    for text, column, width in zip(texts, columns, widths, strict=True):
        spaces = " " * (width - cell_len(text))
        padded.append(spaces + text if column.right else text + spaces)
    return _GAP.join(padded).rstrip()
