"""Compile, instrument and run OpenCL kernels on the CPU runtime, the way the OpenCL backend will."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

#: Room for the scratches of work-groups behind the arena, as many as may run at a time.
SCRATCH_BYTES, WORK_GROUPS = 32 << 20, 2 * (os.cpu_count() or 1)

REPOSITORY = Path(__file__).resolve().parents[3]
LIBRARIES = Path(sys.prefix) / "lib"  # where the wheels of the Intel runtime put their libraries


@lru_cache
def native() -> ModuleType:
    """Build (or bring up to date) and import the test module `_spirv`; its location can be given instead."""
    given = os.environ.get("PASTA_SPIRV_MODULE")
    build = Path(given) if given else REPOSITORY / "build" / "spirv-tests"
    if not given:
        build.mkdir(parents=True, exist_ok=True)
        with (build / ".lock").open("w") as lock:  # the tests may run in several processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            _build(build)
    sys.path.insert(0, str(build))
    import _spirv

    return _spirv


def _build(build: Path) -> None:
    import pybind11

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cmake = shutil.which("cmake", path=path) or "cmake"
    if not (build / "CMakeCache.txt").exists():
        configure = ["-S", str(REPOSITORY / "csrc/device/opencl"), "-B", str(build)]
        ninja = shutil.which("ninja", path=path)
        if ninja:
            configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        hints = [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]
        subprocess.run([cmake, *configure, *hints], check=True, capture_output=True)
    subprocess.run([cmake, "--build", str(build), "-j", "2"], check=True, capture_output=True)


@lru_cache
def open_cl() -> ModuleType | None:
    """pyopencl with the Intel CPU runtime, or None. The wheel's own .icd files name a path that does not exist.

    The loader looks for drivers once a process, at the first listing: the conftest beside this calls early.
    """
    runtime = LIBRARIES / "libintelocl.so"
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    try:
        import pyopencl
    except ImportError:
        return None
    if runtime.exists():
        before = os.environ.get("OCL_ICD_VENDORS")
        vendors = Path(tempfile.mkdtemp(prefix="pasta-icd-"))
        (vendors / "intel.icd").write_text(f"{runtime}\n")
        os.environ["OCL_ICD_VENDORS"] = str(vendors)
        with contextlib.suppress(pyopencl.Error):
            pyopencl.get_platforms()
        del os.environ["OCL_ICD_VENDORS"]
        if before is not None:
            os.environ["OCL_ICD_VENDORS"] = before
    return pyopencl


@lru_cache
def context() -> Any:
    cl = open_cl()
    if cl is None:
        return None
    try:
        devices = [d for p in cl.get_platforms() if "Intel" in p.name for d in p.get_devices()]
    except cl.Error:
        return None
    return cl.Context(devices[:1]) if devices else None


@lru_cache
def queue() -> Any:
    cl = open_cl()
    assert cl is not None
    return cl.CommandQueue(context(), properties=cl.command_queue_properties.PROFILING_ENABLE)


def front_end() -> str:
    return str(LIBRARIES / "libcommon_clang.so")


@lru_cache(maxsize=256)
def compile_source(source: str, options: str = "-cl-std=CL3.0") -> bytes:
    module, log = native().compile(front_end(), source, options)
    assert module, log
    return bytes(module)


def spirv_tool(name: str) -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def validate(module: bytes) -> None:
    """Fails when spirv-val does (a no-op on a machine without it)."""
    tool = spirv_tool("spirv-val")
    if tool:
        done = subprocess.run([tool, "--target-env", "spv1.6", "-"], input=module, capture_output=True)
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()


@dataclass
class Svm:
    """A pointer argument into a shared virtual memory allocation."""

    allocation: Any  # numpy array that lives in it
    offset: int = 0  # rows of the array


@dataclass
class Result:
    """What a launch did, by the reduction on the device."""

    sites: list[dict[str, Any]]
    objects: list[dict[str, Any]]
    blocks: list[tuple[int, int, int, int]]  # object, offset, bytes, accesses
    local_size: list[int]
    trace_lost: int
    lines_lost: bool
    lanes_lost: bool
    slot: bytes = field(repr=False)
    binding: Any = field(repr=False)
    plan: Any = field(repr=False)

    def object(self, argument: int) -> dict[str, Any]:
        """The object behind this argument (object ids here are argument numbers)."""
        found = [o for o in self.objects if o["object_id"] == argument]
        assert len(found) == 1, (argument, self.objects)
        return found[0]

    def from_trace(self, width: int = 32, banks: int = 32) -> dict[str, Any]:
        return dict(native().reduce_trace(self.plan, self.binding, self.slot, width, banks))


class Kernel:
    """One kernel of a program, instrumented and as it was."""

    def __init__(self, source: str, name: str, options: str = "-cl-std=CL3.0", **reducers: Any) -> None:
        build = [o for o in options.split() if o.startswith("-cl-") and not o.startswith("-cl-std")]
        self._make(compile_source(source, options), name, build, {}, reducers)

    @classmethod
    def of_module(cls, module: bytes, name: str, constants: dict[int, Any], **reducers: Any) -> Kernel:
        """A kernel of a SPIR-V module, with values for specialization constants."""
        kernel = cls.__new__(cls)
        kernel._make(module, name, [], constants, reducers)
        return kernel

    def _make(
        self, module: bytes, name: str, build: list[str], constants: dict[int, Any], reducers: dict[str, Any]
    ) -> None:
        self.module = module
        self.instrumented, plans, self.skipped, error = native().instrument(self.module, **reducers)
        assert not error, error
        validate(self.instrumented)
        self.plan = next((p for p in plans if p.name == name), None)
        assert self.plan is not None, self.skipped
        cl = open_cl()
        assert cl is not None
        programs = [cl.Program(context(), words) for words in (self.instrumented, self.module)]
        for program in programs:
            for number, value in constants.items():
                program._get_prg().set_specialization_constant(number, value)
            program.build(build)
        self.kernel, self.original = (getattr(program, name) for program in programs)
        self.arena_bytes = 64 << 20
        self.hidden = buffer(self.arena_bytes + SCRATCH_BYTES)
        self.arena = native().Arena(self.arena_bytes)

    def run(
        self,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *arguments: Any,
        ranges: Sequence[Any] = (),
        trace_records: int = 0,
        map_bytes: int = 4 << 20,
        same_object: dict[int, int] | None = None,
        scratch_bytes: int = SCRATCH_BYTES,
        global_offset: Sequence[int] | None = None,
    ) -> Result:
        """Launch once. Buffers get their argument's number as object id, unless `same_object` renames it."""
        cl = open_cl()
        assert cl is not None
        objects = [self._bound(root, arguments, same_object or {}) for root in self.plan.roots]
        binding = native().bind(
            self.plan, objects, list(ranges), map_bytes, trace_records,
            self.arena_bytes + SCRATCH_BYTES, scratch_bytes, WORK_GROUPS,
        )
        self.arena.reset()
        place = self.arena.place(binding)
        assert place is not None, binding.slot_bytes
        cl.enqueue_fill_buffer(queue(), self.hidden, np.zeros(1, np.uint8), 0, max(self.arena.used, 64))
        data = np.frombuffer(binding.data, np.uint8)
        cl.enqueue_copy(queue(), self.hidden, data, dst_offset=place.binding_offset)
        bound = [cl.SVM(a.allocation[a.offset :]) if isinstance(a, Svm) else a for a in arguments]
        self.kernel(
            queue(), global_size, local_size, *bound, self.hidden, np.uint64(place.launch_word),
            global_offset=global_offset,
        )
        slot = np.empty(binding.slot_bytes, np.uint8)
        cl.enqueue_copy(queue(), slot, self.hidden, src_offset=place.slot_offset)
        queue().finish()
        decoded = native().decode(self.plan, binding, int(np.prod(global_size)), slot.tobytes())
        return Result(**decoded, slot=slot.tobytes(), binding=binding, plan=self.plan)

    def run_original(self, global_size: Sequence[int], local_size: Sequence[int] | None, *arguments: Any) -> None:
        cl = open_cl()
        assert cl is not None
        bound = [cl.SVM(a.allocation[a.offset :]) if isinstance(a, Svm) else a for a in arguments]
        self.original(queue(), global_size, local_size, *bound)
        queue().finish()

    def _bound(self, root: dict[str, Any], arguments: Sequence[Any], same_object: dict[int, int]) -> Any:
        cl = open_cl()
        assert cl is not None
        number = root["argument"]
        if number is None:
            return native().BoundObject(object_id=-1)
        argument = arguments[number]
        object_id = same_object.get(number, number)
        if isinstance(argument, Svm):
            skipped = argument.offset * argument.allocation.strides[0]
            return native().BoundObject(object_id, argument.allocation.nbytes, skipped)
        if isinstance(argument, cl.Image):
            texel = argument.get_image_info(cl.image_info.ELEMENT_SIZE)
            return native().BoundObject(object_id, argument.size, 0, texel)
        return native().BoundObject(object_id, 0 if argument is None else argument.size)


def buffer(array: np.ndarray[Any, Any] | int) -> Any:
    """A buffer that holds a copy of the array, or that many zero bytes."""
    cl = open_cl()
    assert cl is not None
    data = np.zeros(array, np.uint8) if isinstance(array, int) else np.ascontiguousarray(array)
    return cl.Buffer(context(), cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=data)


def contents(source: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    cl = open_cl()
    assert cl is not None
    out = np.empty_like(like)
    cl.enqueue_copy(queue(), out, source)
    queue().finish()
    return out
