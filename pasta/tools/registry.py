"""Find tools by name: the built-in ones, installed ones (entry points ``pasta.tools``) and files (``./mine.py``)."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from pasta.errors import PastaError
from pasta.tools.base import Tool, ToolOptions

#: Built-in tools and the modules that define them, in the order in which `pasta tools` lists them.
BUILTIN: dict[str, str] = {
    name: f"pasta.tools.builtin.{name}"
    for name in (
        "workload",
        "kernels",
        "ops",
        "api",
        "memcpy",
        "sync",
        "ranges",
        "gaps",
        "graphs",
        "memory",
        "workingset",
        "underused",
        "coalescing",
        "divergence",
        "hotness",
        "uvm",
        "events",
    )
}

#: What users of other profilers type.
ALIASES: dict[str, str] = {
    "cuda_gpu_kern_sum": "kernels",
    "cuda_kern_exec_sum": "kernels",
    "cuda_gpu_kern_gb_sum": "kernels",
    "cuda_gpu_sum": "workload",
    "cuda_api_gpu_sum": "workload",
    "cuda_gpu_trace": "events",
    "cuda_api_sum": "api",
    "cuda_api_trace": "events",
    "cuda_gpu_mem_time_sum": "memcpy",
    "cuda_gpu_mem_size_sum": "memcpy",
    "cuda_api_sync": "sync",
    "nvtx_sum": "ranges",
    "nvtx_pushpop_sum": "ranges",
    "nvtx_startend_sum": "ranges",
    "nvtx_gpu_proj_sum": "ranges",
    "um_sum": "uvm",
    "um_total_sum": "uvm",
    "um_cpu_page_faults_sum": "uvm",
    "cuda_um_sum": "uvm",
    "gpu_gaps": "gaps",
    "gpu_time_util": "gaps",
}

ENTRY_POINTS = "pasta.tools"

#: Modules of tools that were given as files are called this and the name of the file.
FILE_MODULE = "pasta_tool_"


@dataclass(frozen=True)
class ToolInfo:
    """One line of `pasta tools`: ``origin`` is ``built in`` or the distribution that brings the tool."""

    name: str
    summary: str
    origin: str
    aliases: tuple[str, ...] = ()


def find(name: str) -> type[Tool]:
    """Return the tool called ``name`` (or its alias), or the one in the file that ``name`` is a path of.

    Raises `PastaError` with the closest names when there is none, or when a third party's tool does not load.
    """
    if name.endswith(".py") or "/" in name:
        return _from_file(Path(name))
    name = ALIASES.get(name, name)
    if name in BUILTIN:
        return _only_tool(importlib.import_module(BUILTIN[name]), name)
    installed = _installed()
    if name in installed:
        return _from_entry_point(installed[name])
    known = sorted({*BUILTIN, *installed, *ALIASES})
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise PastaError(f"there is no tool {name!r}", f"{hint}`pasta tools` lists them")


def names() -> list[str]:
    """Return the names of all tools that can be found, without aliases."""
    return [*BUILTIN, *sorted(set(_installed()) - set(BUILTIN))]


def listing() -> list[ToolInfo]:
    """Describe all tools. A third party's tool that does not load is listed with the reason as its summary."""
    lines = [
        ToolInfo(name, find(name).summary, "built in", tuple(a for a, target in ALIASES.items() if target == name))
        for name in BUILTIN
    ]
    for name, point in sorted(_installed().items()):
        if name in BUILTIN:
            continue
        origin = point.dist.name if point.dist else point.value
        try:
            lines.append(ToolInfo(name, _from_entry_point(point).summary, origin))
        except PastaError as error:
            lines.append(ToolInfo(name, f"cannot be loaded: {error.message}", origin))
    return lines


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _from_entry_point(point: EntryPoint) -> type[Tool]:
    try:
        loaded = point.load()
    except Exception as error:  # a third party's module may fail in any way
        raise PastaError(
            f"tool {point.name!r} ({point.value}) failed to load: {error}", "repair or remove it"
        ) from error
    if isinstance(loaded, ModuleType):
        return _only_tool(loaded, point.name)
    return _checked(loaded, point.value)


def _from_file(path: Path) -> type[Tool]:
    if not path.is_file():
        raise PastaError(f"there is no file {path}", "give the path of a Python file that defines one Tool")
    spec = importlib.util.spec_from_file_location(FILE_MODULE + path.stem, path)
    if spec is None or spec.loader is None:
        raise PastaError(f"{path} is not a Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may fail in any way
        raise PastaError(f"{path} failed: {type(error).__name__}: {error}", "repair the file") from error
    return _only_tool(module, str(path))


def _only_tool(module: ModuleType, origin: str) -> type[Tool]:
    """Return the one `Tool` that ``module`` itself defines."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Tool) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise PastaError(f"{origin} defines {len(found)} tools", "define exactly one subclass of pasta.tools.Tool")
    return _checked(found[0], origin)


def _checked(tool: object, origin: str) -> type[Tool]:
    """Refuse what would fail later with a traceback: no name, no summary, options that are no dataclass."""
    if not (isinstance(tool, type) and issubclass(tool, Tool)):
        raise PastaError(f"{origin} is no tool", "it must be a subclass of pasta.tools.Tool")
    for attribute in ("name", "summary"):
        if not isinstance(getattr(tool, attribute, None), str):
            raise PastaError(f"tool {origin} has no {attribute}", f'give the class {attribute} = "..."')
    options = tool.Options
    if not (dataclasses.is_dataclass(options) and issubclass(options, ToolOptions)):
        raise PastaError(
            f"the options of tool {tool.name} are no dataclass", "derive them from pasta.tools.ToolOptions"
        )
    if options is not ToolOptions and "__dataclass_fields__" not in vars(options):
        raise PastaError(f"the options of tool {tool.name} are no dataclass", "put @dataclass(frozen=True) above them")
    return tool
