"""The order of the table of functions (``dispatch.def``) is that of a driver: the names of its own functions tell."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from opencl_run import need_intel

_DISPATCH = Path(__file__).parents[2] / "csrc/backends/opencl/dispatch.def"


class _Symbol(ctypes.Structure):
    """``Dl_info`` of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _name_of(address: int) -> str | None:
    """Return the name of the exported function at ``address``."""
    symbol = _Symbol()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(symbol))
    return symbol.name.decode() if found and symbol.name and symbol.address == address else None


def test_order_of_functions() -> None:
    names = re.findall(r"^PASTA_CL\w*\(\d+, (?:\w+, )?(\w+)\)", _DISPATCH.read_text(), re.MULTILINE)
    driver = ctypes.CDLL(str(need_intel().path))
    look_up = driver.clGetExtensionFunctionAddress
    look_up.restype = ctypes.c_void_p
    address = look_up(b"clIcdGetPlatformIDsKHR")
    get_platforms = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(address)
    platform = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))()
    assert get_platforms(1, ctypes.byref(platform), None) == 0
    table = platform[0]
    # Intel's driver is of OpenCL 3.1: its table has all entries, though not those of Direct3D.
    theirs = [_name_of(table[i]) if table[i] else None for i in range(len(names))]
    known = [(ours, name) for ours, name in zip(names, theirs, strict=True) if name is not None]
    assert len(known) > 100
    assert [ours for ours, _ in known] == [name for _, name in known]
