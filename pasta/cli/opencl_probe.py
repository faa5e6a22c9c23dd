"""Lists the OpenCL platforms that a loader finds; run in a process of its own, since a broken driver may crash it.

``python -m pasta.cli.opencl_probe LOADER`` prints ``[{"platform", "version", "devices"}]`` as JSON. LOADER is the
path or name of a libOpenCL.so, or ``pyopencl`` for the one that pyopencl brings, which only works loaded by it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_char_p, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer
from typing import Any

# Values of CL/cl.h.
_PLATFORM_VERSION, _PLATFORM_NAME, _DEVICE_NAME = 0x0901, 0x0902, 0x102B
_ALL_DEVICES = 0xFFFFFFFF
_MOST = 64


def pyopencl_platforms() -> list[dict[str, Any]]:
    """Return what pyopencl finds; raises ``ImportError`` without it."""
    import importlib

    pyopencl: Any = importlib.import_module("pyopencl")
    try:
        found = pyopencl.get_platforms()
    except pyopencl.LogicError:  # PLATFORM_NOT_FOUND
        return []
    return [
        {"platform": p.name.strip(), "version": p.version, "devices": [d.name.strip() for d in p.get_devices()]}
        for p in found
    ]


def platforms(loader: str) -> list[dict[str, Any]]:
    """Return what ``loader`` (a path or a name of libOpenCL.so) finds; raises ``OSError`` when it does not load."""
    library = ctypes.CDLL(loader)
    library.clGetDeviceIDs.argtypes = [c_void_p, c_uint64, c_uint32, c_void_p, c_void_p]
    for get in (library.clGetPlatformInfo, library.clGetDeviceInfo):
        get.argtypes = [c_void_p, c_uint32, c_size_t, c_void_p, c_void_p]
    found, count = (c_void_p * _MOST)(), c_uint32()
    if library.clGetPlatformIDs(_MOST, found, byref(count)) != 0:
        return []
    return [
        {
            "platform": _text(library.clGetPlatformInfo, platform, _PLATFORM_NAME),
            "version": _text(library.clGetPlatformInfo, platform, _PLATFORM_VERSION),
            "devices": _devices(library, platform),
        }
        for platform in found[: min(count.value, _MOST)]
    ]


def _devices(library: ctypes.CDLL, platform: Any) -> list[str]:
    found, count = (c_void_p * _MOST)(), c_uint32()
    if library.clGetDeviceIDs(platform, _ALL_DEVICES, _MOST, found, byref(count)) != 0:
        return []
    return [_text(library.clGetDeviceInfo, device, _DEVICE_NAME) for device in found[: min(count.value, _MOST)]]


def _text(get: Any, handle: Any, what: int) -> str:
    buffer = create_string_buffer(4096)
    if get(handle, what, len(buffer), ctypes.cast(buffer, c_char_p), None) != 0:
        return "?"
    return buffer.value.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    print(json.dumps(pyopencl_platforms() if sys.argv[1] == "pyopencl" else platforms(sys.argv[1])))
