"""NVTX annotations of a C program become ranges: nesting, domains, registered and wide text, categories, threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recorded import Trace, record

PROGRAM = r"""
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static nvtxRangeId_t open_range;
static void* end_elsewhere(void* unused) { nvtxRangeEnd(open_range); return unused; }

int main(void) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("solver");
  nvtxDomainNameCategoryA(domain, 7, "assembly");
  nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "registered text");

  nvtxRangePushA("outer");
  nvtxEventAttributes_t attributes = {0};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = text;
  attributes.category = 7;
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxRangePushW(L"weit \u00e4");
  nvtxRangePop();
  nvtxDomainRangePop(domain);
  nvtxMarkA("here");
  nvtxRangePop();

  open_range = nvtxRangeStartA("across threads");
  pthread_t thread;
  pthread_create(&thread, 0, end_elsewhere, 0);
  pthread_join(thread, 0);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders = [path for folder in sys.path if folder for path in Path(folder).glob("nvidia/*/include")]
    headers = [path for path in folders if (path / "nvtx3").exists()]
    if not headers:
        pytest.skip("no NVTX headers: pip install nvidia-nvtx")
    folder = tmp_path_factory.mktemp("nvtx")
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(
        ["gcc", "-I", headers[0], folder / "program.c", "-o", folder / "program", "-ldl", "-pthread"], check=True
    )
    return folder / "program"


def test_ranges(program: Path, tmp_path: Path) -> None:
    result = record([program], tmp_path / "t.pasta")
    assert result.returncode == 0, result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        rows = {row["name"]: row for row in trace.table("range").collect().iter_rows(named=True)}
    assert set(rows) == {"outer", "registered text", "weit ä", "here", "across threads"}
    outer, inner, wide = rows["outer"], rows["registered text"], rows["weit ä"]
    assert (outer["kind"], outer["source"], outer["domain"]) == ("push_pop", "nvtx", None)
    assert (inner["domain"], inner["category"]) == ("solver", "assembly")
    assert inner["parent_id"] == outer["range_id"]
    assert wide["parent_id"] == inner["range_id"]
    assert outer["start_ns"] <= inner["start_ns"] <= wide["start_ns"] <= wide["end_ns"] <= inner["end_ns"]
    assert rows["here"]["kind"] == "mark"
    assert rows["here"]["start_ns"] == rows["here"]["end_ns"]
    assert rows["across threads"]["kind"] == "start_end"
    assert rows["across threads"]["end_ns"] >= rows["across threads"]["start_ns"] >= 0
