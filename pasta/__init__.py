"""pasta: profile programs that run on accelerators.

A program that is recorded may annotate itself::

    with pasta.range("step"):
        ...
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing.TYPE_CHECKING: this module is imported by every command and every target
if TYPE_CHECKING:
    from pasta.annotate import mark as mark
    from pasta.annotate import range as range
    from pasta.annotate import start as start
    from pasta.annotate import stop as stop


def __getattr__(name: str) -> object:
    """Import the annotations at their first use."""
    if name not in ("mark", "range", "start", "stop"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pasta import annotate

    value = globals()[name] = getattr(annotate, name)
    return value
