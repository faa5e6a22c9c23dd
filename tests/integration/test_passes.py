"""`pasta record --passes timing,memory`: one trace of two runs, with the times of one and the counts of the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from opencl_run import built_library, need_intel, run_recorded
from recorded import PASTA, Trace, environment

pytest.importorskip("pyopencl")

PASSES = ("--passes", "timing,memory")
DEMO = [sys.executable, "-m", "pasta.demo.opencl_kernels", "--size", "64"]
#: Counts its own runs in the file ``runs``, launches ``copy`` with N work-items as often as asked, and ends as asked.
PROGRAM = """
import os, signal, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pyopencl as cl
with open("runs", "a") as log:
    log.write("run\\n")
run = len(open("runs").readlines())
platform = next(p for p in cl.get_platforms() if "Intel" in p.name)
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
program = cl.Program(context, '''
kernel void copy(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)]; }
kernel void fill(global int *b) { b[get_global_id(0)] = 7; }
''').build()
a, b = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096) for _ in range(2))
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_passes(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM + code]
    return run_recorded(need_intel(), Path("t.pasta"), *command, options=(*PASSES, *options))


def runs() -> int:
    return len(Path("runs").read_text().splitlines())


def test_demo_has_the_times_of_one_run_and_the_counts_of_the_other(workplace: Path) -> None:
    result = run_recorded(need_intel(), Path("t.pasta"), *DEMO, options=PASSES)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("results correct") == 2
    assert os.listdir() == ["t.pasta"]
    with Trace.open("t.pasta") as trace:
        kernels = trace.kernel.collect()
        assert f"{kernels.height} launches are the same in both passes" in result.stderr
        assert trace.manifest["passes"]["launches"] == {"both": kernels.height, "timing_only": 0, "memory_only": 0}
        assert trace.manifest["passes"]["objects"]["memory_only"] == 0
        assert (kernels["end_ns"] > kernels["start_ns"]).all()
        rows = trace.access_object.collect().join(kernels, on=["pid", "launch_id"], how="left")
        assert rows["name"].null_count() == 0
        counts = {
            name: group.select("loads", "stores").sum().row(0) for (name,), group in rows.group_by("name")
        }
        n = 64
        assert counts["vector_add"] == (2 * n * n, n * n)
        assert counts["transpose_naive"] == (n * n, n * n)
        # Each of 16 x 16 work-items of a tile loads one element of both matrices for each of n / 16 tiles.
        assert counts["matmul"] == (2 * n * n * (n // 16), n * n)
        sites = trace.access_site.collect().join(trace.line.collect(), on=["pid", "site_id"], how="left")
        assert sites["line"].null_count() == 0
        known = set(trace.alloc.collect()["object_id"])
        assert set(rows["object_id"].drop_nulls()) <= known
        assert trace.loss.collect().is_empty()


def test_recording_memory_in_the_environment_does_not_reach_the_timing_pass(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the run that measures builds the program a second time."""
    monkeypatch.setenv("PASTA_MEMORY", "objects")
    variables = need_intel().variables | built_library() | environment() | {"PASTA_MEMORY": "objects"}
    code = "import os, sys; print(repr(os.environ.get('PASTA_MEMORY')))"
    command = [*PASTA, "record", "-o", "t.pasta", *PASSES, "--", sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)
    assert result.stdout.splitlines() == ["''", "'objects'"]


def test_a_program_that_does_not_repeat_itself_is_reported(workplace: Path) -> None:
    """`copy` is launched once more in the second run: which of them is the same is not known. `fill` is."""
    result = run_passes("""
for _ in range(run):
    program.copy(queue, (1024,), None, a, b)
program.fill(queue, (1024,), None, b)
queue.finish()
""")
    assert result.returncode == 0, result.stderr
    assert (
        "1 launches are the same in both passes; the program did not repeat itself: 1 of the timing pass and 2 of the "
        "memory pass have no equal" in result.stderr
    )
    with Trace.open("t.pasta") as trace:
        assert trace.kernel.collect()["name"].to_list() == ["copy", "fill"]
        rows = trace.access_object.collect().join(trace.kernel.collect(), on="launch_id")
        assert rows.select("name", "stores").rows() == [("fill", 1024)]
        lost = dict(trace.loss.select("table", "records").collect().iter_rows())
        assert lost == {"access_object": 4, "access_site": 4, "kernel": 3}
        losses = [loss["cause"] for loss in trace.manifest["losses"]]
        assert "the program did not do the same in both passes" in losses


def test_a_program_that_fails_is_not_run_again(workplace: Path) -> None:
    result = run_passes("program.fill(queue, (64,), None, b); queue.finish(); sys.exit(3)")
    assert result.returncode == 3
    assert runs() == 1
    assert "it was not run again" in result.stderr
    with Trace.open("t.pasta") as trace:
        assert trace.kernel.collect().height == 1
        assert "access_object" not in trace.present


def test_the_status_is_that_of_the_second_run(workplace: Path) -> None:
    result = run_passes("program.fill(queue, (64,), None, b); queue.finish(); sys.exit(0 if run == 1 else 5)")
    assert (result.returncode, runs()) == (5, 2)
    with Trace.open("t.pasta") as trace:
        assert trace.access_object.collect()["stores"].to_list() == [64]
    killed = run_passes(
        "program.fill(queue, (64,), None, b); queue.finish()\nif run == 4: os.kill(os.getpid(), signal.SIGKILL)", "-f"
    )
    assert (killed.returncode, runs()) == (-signal.SIGKILL, 4)
    with Trace.open("t.pasta") as trace:
        assert trace.process.collect()["how_ended"].to_list() == ["exit"]  # of the timing pass


@pytest.mark.parametrize("handled", [False, True])
def test_interrupting_the_first_pass_ends_the_recording(workplace: Path, handled: bool) -> None:
    """Ctrl-C reaches the program too; one that takes it and ends well is not run again either."""
    end = "except KeyboardInterrupt: sys.exit(0)" if handled else "finally: pass"
    wait = "try:\n  print('ready', flush=True)\n  time.sleep(60)"
    code = f"program.fill(queue, (64,), None, b); queue.finish()\n{wait}\n{end}"
    command = [*PASTA, "record", "-o", "t.pasta", *PASSES, "--", sys.executable, "-c", PROGRAM + code]
    variables = environment(**need_intel().variables, **built_library())
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (0 if handled else -signal.SIGINT), errors
    assert runs() == 1
    assert "it was not run again" in errors
    with Trace.open("t.pasta") as trace:
        assert trace.kernel.collect().height == 1


def test_sampling_and_other_reducers_are_those_of_the_memory_pass(workplace: Path) -> None:
    result = run_passes(
        "for _ in range(5): program.fill(queue, (64,), None, b)\nqueue.finish()", "--memory=objects", "--sample", "2:2"
    )
    assert result.returncode == 0, result.stderr
    with Trace.open("t.pasta") as trace:
        assert trace.kernel.collect().height == 5
        assert trace.access_object.collect().height == 3  # the first two, then every second
        assert "access_site" not in trace.present
        assert trace.manifest["options"]["sample"] == "2:2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--passes", "timing"), "--passes=timing is not understood"),
        (("--passes", "timing,timing"), "it takes timing,memory"),
        ((*PASSES, "-o", "t-%p.pasta"), "--passes joins one trace a run"),
        ((*PASSES, "--memory=objects,trace"), "--memory=trace keeps addresses"),
    ],
)
def test_wrong_options_start_nothing(workplace: Path, options: tuple[str, ...], message: str) -> None:
    command = [*PASTA, "record", *options, "--", sys.executable, "-c", "open('runs', 'w')"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert result.returncode == 2
    assert message in result.stderr
    assert os.listdir() == []


def test_a_program_that_is_not_there(workplace: Path) -> None:
    command = [*PASTA, "record", "-o", "t.pasta", *PASSES, "--", "no-such-program"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert result.returncode == 127
    assert os.listdir() == []
