"""Tells the injected library when torch is imported, and on request which module runs.

Executed in the target by ``site/sitecustomize.py`` when torch is found: standard library only, any Python
from 3.8, and nothing that goes wrong here reaches the program.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any


def attach(spec: ModuleSpec, done: Callable[[], None]) -> None:
    """Make the loader of ``spec`` (torch's) call the library around the import; ``done()`` after it succeeded.

    Only the loader's instance is changed, and only until torch is loaded.
    """
    library = ctypes.PyDLL(None)
    importing, imported = library.pasta_torch_importing, library.pasta_torch_imported
    loader: Any = spec.loader
    load = loader.exec_module

    def exec_module(module: Any) -> None:
        importing()
        version = ""
        try:
            load(module)
            version = str(getattr(module, "__version__", "unknown"))
        finally:
            imported(version.encode())
        done()
        loader.__dict__.pop("exec_module", None)
        if os.environ.get("PASTA_TORCH_MODULES") == "1":
            try:
                ModuleHooks(library).register(module)
            except Exception:
                library.pasta_torch_modules_missing()

    loader.exec_module = exec_module


class ModuleHooks:
    """Global forward hooks of ``torch.nn.Module`` that give the library the path of the running module.

    A path is the module's name within the outermost module that was called (``layers.0.attention``), which
    itself goes by the name of its class.
    """

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._entered = library.pasta_torch_module_entered
        self._left = library.pasta_torch_module_left
        self._threads = threading.local()
        self._paths: weakref.WeakKeyDictionary[Any, dict[int, bytes]] = weakref.WeakKeyDictionary()

    def register(self, torch: Any) -> None:
        """Register the hooks with ``torch.nn``; raises when this torch has none that fit."""
        modules = torch.nn.modules.module
        # torch.compile traces through hooks: inside of what it compiles there is no module to tell.
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

        def before(module: Any, arguments: Any) -> None:
            if not is_compiling():
                self._enter(module)

        def after(module: Any, arguments: Any, output: Any) -> None:
            if not is_compiling():
                self._leave(module)

        # Torch 2.0 has no always_call: a module that an exception leaves would seem to run on.
        modules.register_module_forward_hook(after, always_call=True)
        modules.register_module_forward_pre_hook(before)

    def _running(self) -> list[Any]:
        """Return this thread's modules, outermost first."""
        running: list[Any] | None = getattr(self._threads, "running", None)
        if running is None:
            running = self._threads.running = []
        return running

    def _enter(self, module: Any) -> None:
        running = self._running()
        running.append(module)
        self._entered(self._path(running[0], module))

    def _leave(self, module: Any) -> None:
        running = self._running()
        if running and running[-1] is module:
            running.pop()
            self._left()

    def _path(self, root: Any, module: Any) -> bytes:
        if module is root:
            return type(module).__name__.encode()
        paths = self._paths.get(root)
        if paths is None:
            paths = {id(each): name.encode() for name, each in root.named_modules()}
            self._paths[root] = paths
        return paths.get(id(module)) or type(module).__name__.encode()
