"""Each way into a program catches every call once: a layer, the driver's table, and both at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opencl_run import LOADERS, built_library, compile_program, need_intel, rows
from recorded import environment

from pasta.inject.library import library_path
from pasta.trace import Trace

_LIBRARY = built_library().get("PASTA_LIBRARY") or str(library_path())
_DOORS = {
    "layer": {"OPENCL_LAYERS": _LIBRARY},
    "preload": {"LD_PRELOAD": _LIBRARY},
    "both": {"OPENCL_LAYERS": _LIBRARY, "LD_PRELOAD": _LIBRARY},
}


def _launches(program: Path, door: str, output: Path) -> int:
    """Run a program that launches 100 times and checks what comes out; returns how many launches the trace has."""
    driver = need_intel()
    variables = environment(**driver.variables, **_DOORS[door], PASTA_OUTPUT=str(output))
    result = subprocess.run([program, driver.platform], capture_output=True, text=True, timeout=120, env=variables)
    assert (result.returncode, result.stdout) == (0, "100\n"), result.stderr
    if not output.exists():
        return 0
    trace = Trace.open(output)
    return rows(trace, "kernel").height


@pytest.mark.parametrize("door", _DOORS)
@pytest.mark.parametrize("loader", LOADERS)
def test_linked_program(loader: str, door: str, tmp_path: Path) -> None:
    program = compile_program("launch", tmp_path, LOADERS[loader])
    # NVIDIA's loader has no layers.
    expected = 0 if (loader, door) == ("nvidia", "layer") else 100
    assert _launches(program, door, tmp_path / "t.pasta") == expected


@pytest.mark.parametrize("door", _DOORS)
@pytest.mark.parametrize("loader", LOADERS)
def test_program_that_looks_opencl_up(loader: str, door: str, tmp_path: Path) -> None:
    """Nothing of such a program binds to a preloaded library: a layer is the only way."""
    found = LOADERS[loader]
    runtime = [] if found.parent == Path() else [f"-Wl,-rpath,{found.parent}"]
    program = compile_program("launch", tmp_path, None, f'-DLOOKED_UP="{found}"', *runtime)
    expected = 0 if loader == "nvidia" or door == "preload" else 100
    assert _launches(program, door, tmp_path / "t.pasta") == expected


def test_program_without_a_loader(tmp_path: Path) -> None:
    """Calls of a driver linked directly are not seen; the trace says so."""
    program = compile_program("launch", tmp_path, need_intel().path)
    output = tmp_path / "t.pasta"
    assert _launches(program, "both", output) == 0
    trace = Trace.open(output)
    [loss] = trace.table("loss").collect().to_dicts()
    assert loss["cause"] == "the program calls an OpenCL driver without a loader"


_LIST_PLATFORMS = (
    "import pyopencl as cl; print([(p.name, [d.name for d in p.get_devices()]) for p in cl.get_platforms()])"
)


@pytest.mark.parametrize("door", _DOORS)
def test_platforms_are_the_same(door: str, tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    driver = need_intel()
    command = [sys.executable, "-c", _LIST_PLATFORMS]
    plain = subprocess.run(command, capture_output=True, text=True, env=environment(**driver.variables))
    variables = environment(**driver.variables, **_DOORS[door], PASTA_OUTPUT=str(tmp_path / "t.pasta"))
    injected = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert driver.platform in plain.stdout
    assert (injected.returncode, injected.stdout) == (0, plain.stdout)
    # A program that only looks at what there is leaves nothing behind.
    assert not (tmp_path / "t.pasta").exists()
