"""Ids of other profilers, which may be numbers of any size, text or addresses, as the schema's small numbers."""

from __future__ import annotations

from typing import Any

from pasta.importers.chrome_events import to_int

#: Ids that a source wrote are kept below this; ids made here for what does not fit start at it.
MADE = 1 << 30
#: Different ids that are remembered. More of them are taken for damage: new text becomes null.
_MOST = 1 << 20


class Ids:
    """Maps raw ids to numbers: itself when it is a number from 0 to 2**30, else a new one with a name.

    Null stays null, and so does -1, by which profilers say that there is none.
    """

    def __init__(self) -> None:
        #: Raw text of the ids that were made here.
        self.names: dict[int, str] = {}
        self._known: dict[Any, int | None] = {}

    def __call__(self, raw: Any) -> int | None:
        """Return the number for ``raw``."""
        try:
            return self._known[raw]
        except KeyError:
            number = self._new(raw)
            if len(self._known) < _MOST:
                self._known[raw] = number
            return number
        except TypeError:  # a list or an object
            return None

    def named(self, name: str) -> int | None:
        """Return the number made for ``name``, whatever it looks like; null when too many were made."""
        key = (name,)
        if key not in self._known:
            if len(self._known) >= _MOST:
                return None
            self._known[key] = made = MADE + len(self.names)
            self.names[made] = name
        return self._known[key]

    def _new(self, raw: Any) -> int | None:
        number = to_int(raw)
        if number == -1 or raw is None or raw == "":
            return None
        if number is not None and 0 <= number < MADE:
            return number
        return self.named(str(raw))
