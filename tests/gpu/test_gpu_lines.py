"""Source lines, registers and instructions of measured kernels, on programs/memory_patterns.cu with -lineinfo."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, record
from test_gpu_memory import compile_cuda, sanitizer_libraries

from pasta.trace import binaries

SOURCE = Path(__file__).parent / "programs" / "memory_patterns.cu"


def line_of(text: str) -> int:
    """Return the number of the one line of the source that contains ``text``."""
    (number,) = (i for i, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)
    return number


def measure(mode: str, folder: Path, *flags: str) -> Trace:
    program = compile_cuda("memory_patterns.cu", folder, *flags)
    variables = {"PASTA_MEMORY": "objects,sites", "PASTA_SANITIZER_HINTS": sanitizer_libraries()}
    result = record([program, mode], folder / "t.pasta", ["--dir"], **variables)
    assert result.returncode == 0, result.stderr
    assert not list((folder / "t.pasta").glob("cubin-*"))
    return Trace.open(folder / "t.pasta")


def sites(trace: Trace) -> pl.DataFrame:
    return trace.access_site.collect().join(trace.line.collect(), on=["pid", "site_id"])


@pytest.mark.parametrize(
    ("mode", "lines"),
    [
        ("vector_add", {("load", "if (i < n) c[i] = a[i] + b[i];"), ("store", "if (i < n) c[i] = a[i] + b[i];")}),
        ("histogram", {("load", "if (i < n) atomicAdd(&bins[values[i] % 256], 1u);"),
                       ("atomic", "if (i < n) atomicAdd(&bins[values[i] % 256], 1u);")}),
    ],
)  # fmt: skip
def test_sites_have_their_source_lines(tmp_path: Path, mode: str, lines: set[tuple[str, str]]) -> None:
    with measure(mode, tmp_path, "-lineinfo") as trace:
        rows = sites(trace)
        assert {(kind, line) for kind, line in rows.select("kind", "line").rows()} == {
            (kind, line_of(text)) for kind, text in lines
        }, rows
        assert rows["file"].str.ends_with("memory_patterns.cu").all()
        kernel = trace.kernel.collect().row(0, named=True)
        assert kernel["registers"] > 0
        assert (kernel["static_shared_bytes"], kernel["local_bytes"]) == (0, 0)
        assert trace.manifest["instructions"].keys() >= {"global"}


def test_without_line_info_the_offset_stays(tmp_path: Path) -> None:
    with measure("vector_add", tmp_path) as trace:
        rows = sites(trace)
        assert rows["file"].null_count() == rows["line"].null_count() == rows.height == 3
        assert (rows["pc"] % 16 == 0).all()
        if binaries._nvdisasm() is not None:
            assert sorted(text.split(".")[0].split()[-1] for text in rows["text"]) == ["LDG", "LDG", "STG"]
