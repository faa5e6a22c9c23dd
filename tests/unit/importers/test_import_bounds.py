"""What a hostile file cannot do: fill the memory, or choose where anything is written."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from import_helper import imported
from kineto_maker import document, event, kernel, op

from pasta.importers import import_files

MIB = 1 << 20
#: Bytes of the content of each file.
CONTENT = 384 * MIB
#: Four times the largest element (32 MiB: read by doubling, and copied when it grows), and the libraries.
ALLOWED = 224 * MIB

#: Prints by how many KiB the most resident memory grew during an import. VmHWM is that of this program alone, which
#: ``ru_maxrss`` is not: it starts with the parent's.
IMPORT = """
import re, sys
from pathlib import Path
import pasta.importers.kineto, pasta.importers.run
from pasta.errors import PastaError

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak()
try:
    pasta.importers.run.import_files([sys.argv[1]], sys.argv[2])
except PastaError:
    pass
print(peak() - before)
"""

START, END = document([op("aten::add", 0, 10)]).encode().split(b"aten::add")


@pytest.mark.parametrize(
    ("before", "repeated", "after"),
    [
        (START.replace(b"[{", b"["), b" ", b'{"ph": "X", "cat": "cpu_op", "name": "' + END),
        (START, b"A", END),
        (START[:-1], b"[", b"x" + END),
    ],
    ids=["blanks", "endless name", "nesting"],
)
def test_content_that_does_not_end_takes_bounded_memory(
    before: bytes, repeated: bytes, after: bytes, tmp_path: Path
) -> None:
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.write(before)
        for _ in range(CONTENT // MIB):
            file.write(repeated * MIB)
        file.write(after)
    command = [sys.executable, "-c", IMPORT, str(bomb), str(tmp_path / "out.pasta")]
    grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(grown) * 1024 < ALLOWED


def test_names_in_a_file_are_never_paths(tmp_path: Path) -> None:
    """A rank becomes a folder of the trace; only a number can."""
    away = "../../escaped"
    text = document(
        [op(away, 0, 10), kernel(away, 20, 30, 1, device=away, stream=away), event("cpu_op", "x", 40, 50, pid=away)],
        distributedInfo={"rank": away},
        traceName=away,
    )
    (tmp_path / "in.json").write_text(text)
    output = tmp_path / "inner" / "out"
    output.parent.mkdir()
    import_files([tmp_path / "in.json"], output, form="dir")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.json", "inner"]
    assert [path.name for path in output.parent.iterdir()] == ["out"]
    parts = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    tables = json.loads((output / "manifest.json").read_text())["rows"]
    assert parts == {"manifest.json", *(f"{table}/part-0.parquet" for table in tables)}


def test_a_rank_that_is_a_number_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(document([op("aten::add", 0, 10)], distributedInfo={"rank": 3}))
    import_files([tmp_path / "in.json"], tmp_path / "out", form="dir")
    assert (tmp_path / "out" / "op" / "rank=3" / "part-0.parquet").is_file()
    assert imported(tmp_path / "in.json").rows("op", "rank") == [3]
