"""Start fast: values that are text are not checked with pydantic, whose import takes longer than all else together.

typer since 0.26 makes a pydantic validator for every parameter, used or not. Here a validator is only made for a value
that was given and is not text. Older versions of typer have no ``get_runtime_param`` and are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_TEXT = (str, list[str])


def defer_validators(parameters: Iterable[Any]) -> None:
    """Let typer's ``parameters`` make their validators when a value needs one; harmless when it was done before."""
    for parameter in parameters:
        make = getattr(parameter, "get_runtime_param", None)
        if make is not None and not isinstance(make.__self__, _Deferred):
            parameter.get_runtime_param = _Deferred(make).here


class _Deferred:
    """Stands for typer's validator of one parameter."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def here(self) -> _Deferred:
        """Return itself: what typer calls to get the validator."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return ``value`` as the parameter's type; raises click's BadParameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if param.type_descriptor.annotation in _TEXT:
            return value
        return self._make().coerce(value, param=param, ctx=ctx)
