"""What AMD's formats share: work-items against blocks, names of copies and of API domains, events of the driver."""

from __future__ import annotations

import re

#: Ends of the names of copies: rocprofiler-sdk's, then those of roctracer, and pasta's.
_COPIES = {
    **{"HOST_TO_DEVICE": "h2d", "DEVICE_TO_HOST": "d2h", "DEVICE_TO_DEVICE": "d2d", "HOST_TO_HOST": "h2h"},
    **{"HostToDevice": "h2d", "DeviceToHost": "d2h", "DeviceToDevice": "d2d", "HostToHost": "h2h"},
}

#: Beginnings of rocprofiler-sdk's names of API domains, and pasta's. ``_EXT`` and ``_API`` follow, more come each year.
_DOMAINS = {
    **{"HIP_RUNTIME_API": "hip", "HIP_COMPILER_API": "hip", "HIP_API": "hip", "HSA_": "hsa", "RCCL_API": "rccl"},
    **{"ROCDECODE_API": "other", "ROCJPEG_API": "other"},
}

#: Ends of the names of migrations in rocprofiler-sdk (KFD_PAGE_MIGRATE): what caused it, and where pages go. A
#: prefetch can go both ways: then the agents decide.
_MIGRATIONS = {
    **{"PREFETCH": ("prefetch", None), "PAGEFAULT_GPU": ("fault", "migrate_h2d")},
    **{"PAGEFAULT_CPU": ("fault", "migrate_d2h"), "TTM_EVICTION": ("eviction", "migrate_d2h")},
}

_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")


def blocks(work_items: int | None, block: int | None) -> int | None:
    """Return how many blocks cover ``work_items``, in which HSA states a grid; the last block may be short."""
    if work_items is None or block is None or block <= 0:
        return None
    return -(-work_items // block)


def copy_kind(name: str | None) -> str:
    """Return pasta's kind of a copy of this name."""
    return next((kind for end, kind in _COPIES.items() if name and name.endswith(end)), "unknown")


def api_of(domain: str) -> str | None:
    """Return pasta's API for a domain of calls, None for a domain that is not about calls of a device API."""
    name = domain.upper().removeprefix("ROCM_")
    return next((api for start, api in _DOMAINS.items() if name.startswith(start)), None)


def migration(operation: str, from_gpu: bool | None, to_gpu: bool | None) -> tuple[str, str]:
    """Return kind and cause of a migration of unified memory, given whether its ends are on a GPU (None: unknown)."""
    known = next((value for end, value in _MIGRATIONS.items() if operation.upper().endswith(end)), None)
    cause, kind = known or ("unknown", None)
    if from_gpu and to_gpu:
        kind = "migrate_d2d"
    elif from_gpu is False and to_gpu:
        kind = "migrate_h2d"
    elif from_gpu and to_gpu is False:
        kind = "migrate_d2h"
    return kind or "unknown", cause


def fault_access(operation: str) -> str | None:
    """Return ``read`` or ``write`` for the name of a page fault."""
    return next((access for access in ("read", "write") if access in operation.lower()), None)


def number_in(label: str | None) -> int | None:
    """Return the number in ``Agent 4``, ``GPU 0`` or ``4``."""
    found = _LAST_NUMBER.search(label or "")
    return int(found[1]) if found else None
