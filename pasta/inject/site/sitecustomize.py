"""Runs first in every Python of the target: watches for the import of torch, collects devices at exit.

``pasta record`` puts this folder, which holds nothing else, on ``PYTHONPATH``. Python imports one
``sitecustomize``: the one that ours hides is run at the end, as if ours were not there. The target's Python
may be any version and need not have pasta installed, so this uses the standard library only; and every
Python program pays for it, so it imports nothing that Python has not loaded by then (``typing`` alone would
double the time that Python takes to start).
"""

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

_HERE = os.path.realpath(os.path.dirname(__file__))


class _TorchWatch:
    """A finder that lets the others find torch, and attaches the hooks to what they found."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if name != "torch":
            return None
        spec = _find(name, path, [finder for finder in sys.meta_path if finder is not self])
        if spec is not None:
            self._attach(spec)
        return spec

    def _attach(self, spec: "ModuleSpec") -> None:
        try:
            hooks: dict[str, Any] = {"__name__": "pasta_torch_hooks"}
            with open(os.path.join(os.path.dirname(_HERE), "torch_hooks.py"), encoding="utf-8") as source:
                exec(compile(source.read(), source.name, "exec"), hooks)
            hooks["attach"](spec, self._detach)
        except Exception:
            self._detach()

    def _detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _find(name: str, path: "Any", finders: "Any") -> "ModuleSpec | None":
    for finder in finders:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find_spec is None else find_spec(name, path)
        if spec is not None:
            return spec
    return None


def _collect() -> None:
    """Collect what devices have finished, while the program's objects are still alive."""
    # Whatever drives a device from Python has imported ctypes, directly or through numpy.
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        try:
            ctypes.CDLL(None).pasta_flush(2000)
        except Exception:
            return


def _run_hidden() -> None:
    """Run the ``sitecustomize`` that Python would have found without ours, as the module of that name."""
    places = [os.path.realpath(entry) for entry in sys.path]
    after = sys.path[places.index(_HERE) + 1 :] if _HERE in places else []
    spec = _find("sitecustomize", after, sys.meta_path) if after else None
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__file__ = spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("PASTA_OUTPUT"):
    sys.meta_path.insert(0, _TorchWatch())
    atexit.register(_collect)
_run_hidden()
