"""The Python door: ``sitecustomize`` and the import hook leave every other part of Python as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch_runs import PYTHON, python, record, recorded, run

from pasta.inject.library import site_directory

_RECORDED = {"PYTHONPATH": str(site_directory()), "PASTA_OUTPUT": "/nowhere/trace"}


def _fake_torch(folder: Path, text: str = "__version__ = '9.9'\n") -> str:
    """Make a package called torch and return its place for PYTHONPATH."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(text)
    return str(folder)


def test_nothing_is_imported_that_python_has_not_loaded(tmp_path: Path) -> None:
    # site finds no other sitecustomize in an empty environment: -S would skip ours as well.
    program = "import sys; print(*sorted(sys.modules))"
    bare = set(run(*python(program), environment={"PYTHONPATH": ""}).stdout.split())
    ours = set(run(*python(program), environment=_RECORDED).stdout.split())
    assert ours - bare <= {"sitecustomize", "atexit"}


def test_hidden_sitecustomize_runs_as_itself(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nANSWER = 42\nprint('custom', __name__, __file__)\n")
    path = f"{site_directory()}{os.pathsep}{tmp_path}"
    program = "import sitecustomize; print(sitecustomize.ANSWER)"
    result = run(*python(program), environment={**_RECORDED, "PYTHONPATH": path})
    assert result.stdout.splitlines() == [f"custom sitecustomize {tmp_path / 'sitecustomize.py'}", "42"]
    assert result.stderr == ""


def test_error_in_the_hidden_sitecustomize_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("1 / 0\n")
    program = "print('goes on')"
    without = run(*python(program), environment={"PYTHONPATH": str(tmp_path)})
    path = f"{site_directory()}{os.pathsep}{tmp_path}"
    with_ours = run(*python(program), environment={**_RECORDED, "PYTHONPATH": path})
    assert (with_ours.status, with_ours.stdout) == (without.status, without.stdout) == (0, "goes on\n")
    assert with_ours.stderr == without.stderr


def test_two_installations_do_not_call_each_other_forever(tmp_path: Path) -> None:
    other = tmp_path / "site"
    other.mkdir()
    (other / "sitecustomize.py").write_text((site_directory() / "sitecustomize.py").read_text())
    path = os.pathsep.join([str(site_directory()), str(other)])
    result = run(*python("print('ok')"), environment={**_RECORDED, "PYTHONPATH": path})
    assert (result.status, result.stdout, result.stderr) == (0, "ok\n", "")


def test_import_hook_without_the_library_changes_nothing(tmp_path: Path) -> None:
    # PYTHONPATH survived, LD_PRELOAD did not.
    path = f"{site_directory()}{os.pathsep}{_fake_torch(tmp_path)}"
    program = """
import sys, torch
print(torch.__version__, type(torch.__spec__.loader).__name__, "exec_module" in vars(torch.__loader__))
print([type(finder).__name__ for finder in sys.meta_path if "Watch" in type(finder).__name__])
"""
    result = run(*python(program), environment={**_RECORDED, "PYTHONPATH": path})
    assert result.stdout.splitlines() == ["9.9 SourceFileLoader False", "[]"]
    assert result.stderr == ""


def test_import_hook_leaves_no_trace_in_the_import_system(tmp_path: Path) -> None:
    program = """
import importlib.util, sys
assert importlib.util.find_spec("torch") is not None  # as libraries do to see whether torch is there
import torch
print(torch.__version__, type(torch.__spec__.loader).__name__, "exec_module" in vars(torch.__loader__))
print([type(finder).__name__ for finder in sys.meta_path if "Watch" in type(finder).__name__])
"""
    place = _fake_torch(tmp_path / "packages")
    result = record(tmp_path / "trace", *python(program), environment={"PYTHONPATH": place})
    assert result.stdout.splitlines() == ["9.9 SourceFileLoader False", "[]"]
    assert result.stderr == ""
    assert not (tmp_path / "trace").exists()  # that torch allocates nothing: there is nothing to record


def test_failing_import_fails_as_without_pasta(tmp_path: Path) -> None:
    place = _fake_torch(tmp_path / "packages", "raise OSError('broken')\n")
    program = """
for _ in range(2):
    try:
        import torch
    except OSError as error:
        print(error)
"""
    result = record(tmp_path / "trace", *python(program), environment={"PYTHONPATH": place})
    assert (result.status, result.stdout, result.stderr) == (0, "broken\nbroken\n", "")


def test_program_without_torch_leaves_no_trace(tmp_path: Path) -> None:
    result = record(tmp_path / "trace", *python("print('out')"))
    assert (result.status, result.stdout, result.stderr) == (0, "out\n", "")
    assert not (tmp_path / "trace").exists()


def test_module_run_by_name(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "work.py").write_text("import torch\ntorch.ones(2).neg()\n")
    trace = recorded(tmp_path / "trace", PYTHON, "-m", "work", environment={"PYTHONPATH": str(tmp_path)})
    assert "aten::neg" in trace.table("op").collect()["name"].to_list()
