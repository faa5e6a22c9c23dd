"""What Kineto says only in names: copy directions, kinds of memory, APIs, waits, collectives, devices' vendors."""

from __future__ import annotations

import re
from functools import lru_cache

_COPY = re.compile(r"Memcpy\s*(\w+?)(to|2)(\w+)\s*(?:\((.*) -> (.*)\))?")
_SET = re.compile(r"Memset\s*\((?:(-?\d+) -> )?(.*)\)")

#: Letters of a copy's kind: host (M: memory that Level Zero did not allocate), device, array, peer.
_SIDES = {"H": "h", "M": "h", "D": "d", "A": "d", "P": "p"}

_CUDA_MEMORY = {
    "Pageable": "pageable",
    "Pinned": "pinned",
    "Device": "device",
    "Device Static": "device",
    "Array": "array",
    "Managed": "managed",
    "Managed Static": "managed",
}
_XPU_MEMORY = {"Memory": "pageable", "Host": "host_usm", "Device": "device_usm", "Shared": "shared_usm"}


@lru_cache(maxsize=4096)
def copy_kinds(name: str) -> tuple[str, str | None, str | None]:
    """Return the direction and the source and destination memory of ``Memcpy HtoD (Pageable -> Device)``.

    CUDA and ROCm write ``HtoD``, Intel's plugin ``M2D``. ROCm's ``Host`` may be pageable or pinned: null.
    """
    match = _COPY.match(name)
    if not match:
        return "unknown", None, None
    source, joint, target, source_memory, target_memory = match.groups()
    kind = f"{_SIDES.get(source.upper(), '?')}2{_SIDES.get(target.upper(), '?')}"
    memory = _XPU_MEMORY if joint == "2" else _CUDA_MEMORY
    known = kind if kind in ("h2d", "d2h", "d2d", "h2h", "p2p") else "unknown"
    return known, memory.get(source_memory or ""), memory.get(target_memory or "")


@lru_cache(maxsize=4096)
def set_kinds(name: str) -> tuple[int | None, str | None]:
    """Return the value and the memory of ``Memset (Device)`` or of Intel's ``Memset (0 -> Device)``."""
    match = _SET.match(name)
    if not match:
        return None, None
    value, memory = match.groups()
    if value is None:
        return None, _CUDA_MEMORY.get(memory)
    return (int(value) if len(value) < 19 else None), _XPU_MEMORY.get(memory)


@lru_cache(maxsize=4096)
def api_of(category: str, name: str) -> str:
    """Return the API of a call: ROCm's HIP calls carry the category of CUDA's runtime."""
    for prefix, api in (("hip", "hip"), ("hsa_", "hsa"), ("ze", "level_zero"), ("nccl", "nccl"), ("rccl", "rccl")):
        if name.startswith(prefix):
            return api
    if name.startswith("cuda"):
        return "cuda_runtime"
    return {"cuda_runtime": "cuda_runtime", "Runtime": "cuda_runtime", "cuda_driver": "cuda_driver"}.get(
        category, "other"
    )


#: Runtime and driver calls that return when the device is done; their ends in names of every vendor.
_WAITS = (
    ("DeviceSynchronize", "device"),
    ("CtxSynchronize", "context"),
    ("StreamSynchronize", "stream"),
    ("EventSynchronize", "event"),
)


@lru_cache(maxsize=4096)
def wait_of(call: str) -> str | None:
    """Return what the runtime call ``call`` waits for, None when it is no wait."""
    base = re.sub(r"_(v\d+|ptsz|spt)$", "", call)
    return next((kind for ending, kind in _WAITS if base.endswith(ending)), None)


_SYNC_KINDS = {
    "Stream Sync": "stream",
    "Event Sync": "event",
    "Context Sync": "context",
    "Device Sync": "device",
    "Stream Wait Event": "stream_event",
}


def sync_kind(name: str) -> str:
    """Return the kind of a ``cuda_sync`` event."""
    return _SYNC_KINDS.get(name, "unknown")


#: Names of collectives, without separators, in c10d's arguments and in NCCL's kernels.
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "send": "send",
    "recv": "recv",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}
_NCCL_KERNEL = re.compile(r"^(?:void )?(?:nccl|rccl)(?:Dev)?Kernel_?([A-Za-z]+)?")


@lru_cache(maxsize=4096)
def collective_kind(name: str) -> str | None:
    """Return the kind in a collective's name: ``_allgather_base``, ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``."""
    kernel = _NCCL_KERNEL.match(name)
    text = (kernel.group(1) or "") if kernel else name
    text = text.replace("_", "").lower()
    return next((kind for known, kind in _COLLECTIVES.items() if text.startswith(known)), None)


def is_collective_kernel(name: str) -> bool:
    """Return whether a kernel belongs to NCCL or RCCL."""
    return name.startswith(("nccl", "rccl", "void nccl"))


#: Bytes of an element, by the names that c10d gives to types.
_ITEM_BYTES = {
    "float": 4,
    "float32": 4,
    "double": 8,
    "float64": 8,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "int": 4,
    "int32": 4,
    "long": 8,
    "int64": 8,
    "short": 2,
    "int16": 2,
    "char": 1,
    "int8": 1,
    "byte": 1,
    "uint8": 1,
    "bool": 1,
}


def item_bytes(dtype: object) -> int | None:
    """Return the size of an element of the type that c10d calls ``dtype``."""
    text = str(dtype).rpartition("::")[2].lower()
    return 1 if text.startswith("float8") else _ITEM_BYTES.get(text)


def vendor_of(device: str, keys: frozenset[str]) -> str | None:
    """Return the vendor by a device's name, or by the versions that the file's header states."""
    lower = device.lower()
    marks = (("nvidia", "NVIDIA"), ("tesla", "NVIDIA"), ("amd", "AMD"), ("radeon", "AMD"), ("intel", "Intel"))
    for mark, vendor in marks:
        if mark in lower:
            return vendor
    if is_rocm(keys):
        return "AMD"
    return "NVIDIA" if any(key.startswith(("cuda_", "cupti_")) for key in keys) else None


def is_rocm(keys: frozenset[str]) -> bool:
    """Return whether the header's keys are those of a ROCm build."""
    return any(key.startswith(("hip_", "roctracer_", "rocprofiler")) for key in keys)


#: c10's numbers of device types.
_DEVICE_TYPES = {
    0: "cpu",
    1: "cuda",
    6: "hip",
    9: "xla",
    12: "xpu",
    13: "mps",
    15: "hpu",
    18: "mtia",
    20: "privateuse1",
}


def device_type(number: int | None) -> str | None:
    """Return the name of a device type of PyTorch."""
    return None if number is None else _DEVICE_TYPES.get(number, f"type {number}")
