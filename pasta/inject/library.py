"""Finds the native library that is injected into the target."""

from __future__ import annotations

import os
from pathlib import Path

from pasta.errors import PastaError

_NAME = "libpasta_inject.so"


def library_path() -> Path:
    """Return the path of ``libpasta_inject.so``: ``PASTA_LIBRARY`` if set, else the one installed with pasta.

    Raises ``PastaError`` (exit code 125) when it is not there.
    """
    override = os.environ.get("PASTA_LIBRARY")
    path = Path(override) if override else Path(__file__).resolve().parent.parent / "lib" / _NAME
    if not path.is_file():
        fix = "correct PASTA_LIBRARY" if override else "reinstall pasta with pip (its wheel is built with gcc)"
        raise PastaError(f"the injected library {path} is not there", fix, exit_code=125)
    return path


def site_directory() -> Path:
    """Return the folder that holds pasta's ``sitecustomize.py``, for the target's ``PYTHONPATH``."""
    return Path(__file__).resolve().parent / "site"
