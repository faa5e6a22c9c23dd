"""Traces of other profilers, in pasta's tables: ``detect`` and ``import_files``."""

from __future__ import annotations

from pasta.importers.base import ImportSummary, Kind
from pasta.importers.detect import detect
from pasta.importers.run import import_files

__all__ = ["ImportSummary", "Kind", "detect", "import_files"]
