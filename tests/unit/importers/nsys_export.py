"""Small Nsight Systems exports, as ``nsys export --type sqlite`` writes them (columns of its documentation)."""

from __future__ import annotations

from typing import Any

from sqlite_builder import SqliteBuilder

VM = 1 << 48  # every global id of a real export has the virtual machine in these bits


def global_pid(pid: int) -> int:
    return VM | pid << 24


def global_tid(pid: int, tid: int) -> int:
    return global_pid(pid) | tid


class NsysExport(SqliteBuilder):
    """One export; every method adds one event, with defaults for what a test does not care about."""

    def call(
        self, name: str, start: int, end: int, pid: int = 10, tid: int = 11, correlation: int = 0, **more: Any
    ) -> None:
        row = {"start": start, "end": end, "eventClass": 0, "globalTid": global_tid(pid, tid)}
        row |= {"correlationId": correlation, "nameId": self.string(name), "returnValue": 0}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", row | more)

    def kernel(self, name: str, start: int, end: int, pid: int = 10, correlation: int = 0, **more: Any) -> None:
        row = self.work(start, end, pid, correlation)
        row |= {"demangledName": self.string(f"void {name}(int)"), "shortName": self.string(name)}
        row |= {f"grid{axis}": 1 for axis in "XYZ"} | {f"block{axis}": 1 for axis in "XYZ"}
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", row | {"registersPerThread": 16} | more)

    def copy(
        self, kind: int, size: int, start: int, end: int, pid: int = 10, correlation: int = 0, **more: Any
    ) -> None:
        row = self.work(start, end, pid, correlation) | {"bytes": size, "copyKind": kind}
        row |= {"srcKind": 0, "dstKind": 2, "srcDeviceId": None, "dstDeviceId": None}
        row |= {"migrationCause": None, "virtualAddress": None}
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", row | more)

    def nvtx(self, text: str | None, start: int, end: int | None, kind: int = 59, tid: int = 11, **more: Any) -> None:
        row = {"start": start, "end": end, "eventType": kind, "text": text, "textId": None, "category": None}
        self.add("NVTX_EVENTS", row | {"globalTid": global_tid(10, tid), "domainId": 0} | more)

    def about(self, name: str, value: str, table: str = "META_DATA_EXPORT") -> None:
        self.add(table, {"name": name, "value": value})

    def work(self, start: int, end: int, pid: int, correlation: int) -> dict[str, Any]:
        row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7}
        return row | {"correlationId": correlation, "globalPid": global_pid(pid)}
