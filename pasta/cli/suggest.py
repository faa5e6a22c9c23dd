"""What to say about a name that does not exist: the nearest ones that do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from pasta.errors import PastaError


def unknown(kind: str, name: str, known: Iterable[str], listing: str) -> PastaError:
    """Return the error for the unknown ``name`` of a ``kind``; ``listing`` is the command that shows them all."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    shown = name if len(name) <= 60 else name[:57] + "..."
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return PastaError(f"no {kind} {shown!r}", f"{guess}{listing} lists them")
