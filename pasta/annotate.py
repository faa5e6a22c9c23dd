"""Annotations of a program by itself: ``pasta.range``, ``pasta.mark``, ``pasta.start``, ``pasta.stop``.

They reach the library that ``pasta record`` injected into this process (``csrc/doors/control.cpp``). In a
program that is not recorded they do nothing, so that it may keep them.
"""

from __future__ import annotations

import functools
import os

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import TracebackType
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])


class _NotRecorded:
    """Stands in for the library in a program that is not recorded."""

    def pasta_range_push(self, name: bytes) -> None:
        """Do nothing."""

    def pasta_range_pop(self) -> None:
        """Do nothing."""

    def pasta_range_start(self, name: bytes) -> int:
        """Do nothing."""
        return 0

    def pasta_range_end(self, range_id: int) -> None:
        """Do nothing."""

    pasta_range_mark = pasta_range_push
    pasta_start = pasta_stop = pasta_range_pop


def _find_library() -> Any:
    if not os.environ.get("PASTA_OUTPUT"):
        return _NotRecorded()
    try:
        import ctypes

        library = ctypes.CDLL(None)
        library.pasta_range_start.restype = ctypes.c_longlong
        library.pasta_range_end.argtypes = [ctypes.c_longlong]
        for name in ("pasta_range_push", "pasta_range_mark", "pasta_range_pop", "pasta_start", "pasta_stop"):
            getattr(library, name).restype = None
    except (ImportError, OSError, AttributeError):  # no ctypes, or the library is not in this process
        return _NotRecorded()
    return library


_library = _find_library()
_push, _pop = _library.pasta_range_push, _library.pasta_range_pop
_start, _end = _library.pasta_range_start, _library.pasta_range_end


class range:
    """A named range of time: a ``with`` block, an ``async with`` block, or the calls of a function.

    ``with pasta.range("step"):`` nests: on one thread the range that was entered last is left first, so a
    block must not wait for another task of an event loop. ``async with`` ranges may overlap in any way; use
    a new ``pasta.range`` for each. Decorated functions may be coroutine functions and generator functions,
    whose range lasts from the first to the last step of each call.
    """

    __slots__ = ("_ids", "_name")

    def __init__(self, name: str) -> None:
        self._name = str(name).encode("utf-8", "replace")
        self._ids: list[int] = []

    def __enter__(self) -> range:
        _push(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _pop()

    async def __aenter__(self) -> range:
        self._ids.append(_start(self._name))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _end(self._ids.pop())

    def __call__(self, function: _Function) -> _Function:
        """Decorate ``function``. Raises ``TypeError`` for an asynchronous generator function."""
        import inspect

        name = self._name

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            _push(name)
            try:
                return function(*args, **kwargs)
            finally:
                _pop()

        @functools.wraps(function)
        async def await_call(*args: Any, **kwargs: Any) -> Any:
            range_id = _start(name)
            try:
                return await function(*args, **kwargs)
            finally:
                _end(range_id)

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            range_id = _start(name)
            try:
                return (yield from function(*args, **kwargs))
            finally:
                _end(range_id)

        wrapper: Callable[..., Any] | Callable[..., Awaitable[Any]] = call
        if inspect.isasyncgenfunction(function):
            raise TypeError("pasta.range does not decorate asynchronous generators: use async with inside of it")
        if inspect.iscoroutinefunction(function):
            wrapper = await_call
        elif inspect.isgeneratorfunction(function):
            wrapper = generate
        return wrapper  # type: ignore[return-value]


def mark(name: str) -> None:
    """Record a moment by name."""
    _library.pasta_range_mark(str(name).encode("utf-8", "replace"))


def start() -> None:
    """Collect from here on: undoes ``stop()``, or opens ``--capture-range=cudaProfilerApi``."""
    _library.pasta_start()


def stop() -> None:
    """Collect nothing until ``start()``; what is known of memory objects is kept up to date all the same."""
    _library.pasta_stop()
