"""pasta: profile programs that run on accelerators."""

__version__ = "0.1.0"
