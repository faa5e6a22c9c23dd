"""The loader of OpenCL C compilers."""

from __future__ import annotations

from pathlib import Path

import pytest
from spirv_harness import front_end, native, validate

pytestmark = pytest.mark.usefixtures("compiler")


def compile(source: str, options: str = "", headers: list[tuple[str, str]] | None = None) -> tuple[bytes, str]:
    words, log = native().compile(front_end(), source, options, headers or [])
    return bytes(words), str(log)


def test_include_paths_macros_and_versions(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#define SCALE(x) ((x) * FACTOR)\n")
    source = '#include "scale.h"\nkernel void k(global int *p) { p[0] = SCALE(p[1]); }'
    words, log = compile(source, f"-I {tmp_path} -D FACTOR=3 -cl-std=CL1.2")
    assert words, log
    validate(words)
    words, log = compile(source, "-D FACTOR=3")
    assert not words
    assert "scale.h" in log


def test_headers_in_memory() -> None:
    source = '#include "scale.h"\nkernel void k(global int *p) { p[0] = SCALE; }'
    words, log = compile(source, "", [("scale.h", "#define SCALE 7\n")])
    assert words, log


def test_a_build_error_is_the_compilers_own_text() -> None:
    words, log = compile("kernel void k(global int *p) { p[0] = nonsense; }")
    assert words == b""
    assert "nonsense" in log
    assert "error" in log


def test_double_half_and_program_scope_variables() -> None:
    source = """
    #pragma OPENCL EXTENSION cl_khr_fp64 : enable
    #pragma OPENCL EXTENSION cl_khr_fp16 : enable
    global int counter = 3;
    kernel void k(global double *d, global half *h) { d[0] = sqrt(d[1]) + counter; h[0] = h[1] * h[2]; }"""
    words, log = compile(source, "-cl-std=CL3.0")
    assert words, log
    validate(words)


def test_a_library_that_is_none_says_why(tmp_path: Path) -> None:
    fake = tmp_path / "libcommon_clang.so"
    fake.write_text("no library")
    words, why = native().compile(str(fake), "kernel void k() {}")
    assert words == b""
    assert str(fake) in why
    words, why = native().compile(str(tmp_path / "missing.so"), "kernel void k() {}")
    assert words == b""
    assert "missing.so" in why
