"""What a command line runs, in a word: for the name of a trace and the first line of a report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

_INTERPRETERS = frozenset({"python", "pypy", "sh", "bash", "dash", "zsh", "perl", "ruby", "node", "julia"})


def program_name(command: Sequence[str]) -> str:
    """Return the file name of the script, the module of ``python -m``, or the program's name; "" for no command."""
    words = [word for word in command if word]
    if not words:
        return ""
    name = PurePath(words[0]).name
    if name.rstrip("0123456789.") not in _INTERPRETERS:
        return name
    for option, word in pairwise(words):
        if option == "-m":
            return word
        if option.startswith("-") and option.endswith("c"):  # -c, -lc: the program is in the next word
            return name
        if not word.startswith("-"):
            return PurePath(word).name
    return name
