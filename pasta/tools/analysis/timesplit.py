"""Split the wall time of devices: kernels, copies, and idle by what the host was doing. Exact: the parts add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pasta.tools.analysis import activity
from pasta.tools.analysis.intervals import Intervals, Times
from pasta.tools.analysis.steps import Steps
from pasta.tools.base import TraceView

#: Parts of the wall time of a device, each nanosecond in one: the first that applies.
PARTS = (
    "kernels",
    "copies and fills",
    "idle, host waiting for the device",
    "idle, host in device API calls",
    "idle, host in operators",
    "idle, host elsewhere",
)
_FIRST_IDLE = 2


@dataclass(frozen=True)
class DeviceSplit:
    """The wall time of one device: ``wall`` is the union of ``parts``, which are disjoint and ordered as `PARTS`."""

    device: activity.Device
    host: activity.Host
    wall: Intervals
    parts: Sequence[Intervals]

    @property
    def idle(self) -> Intervals:
        """When the device did nothing."""
        return self.wall - self.device.busy


def split(trace: TraceView, steps: Steps | None) -> list[DeviceSplit]:
    """Split the time of each device within its steps or, where there are none, within the whole trace."""
    windows = activity.windows(trace)
    splits = []
    for device in activity.devices(trace):
        own = Intervals.of(steps.of(*device.pids)) if steps else windows
        wall = own & windows
        if not len(wall):
            continue
        host = activity.host(trace, device.pids)
        kernels = device.kernels & wall
        copies = ((device.copies | device.fills) & wall) - kernels
        idle = wall - device.busy
        splits.append(DeviceSplit(device, host, wall, [kernels, copies, *activity.split_idle(idle, host)]))
    return splits


def totals(splits: Sequence[DeviceSplit]) -> list[int]:
    """Return the time of each of `PARTS`, all devices together."""
    return [sum(split.parts[i].measure for split in splits) for i in range(len(PARTS))]


def idle_total(splits: Sequence[DeviceSplit]) -> int:
    """Return how long devices were idle, all together."""
    return sum(totals(splits)[_FIRST_IDLE:])


def wall_total(splits: Sequence[DeviceSplit]) -> int:
    """Return the wall time of all devices together."""
    return sum(split.wall.measure for split in splits)


def per_step(splits: Sequence[DeviceSplit], steps: Steps) -> pl.DataFrame:
    """Return the time of each part in each step of each device: ``part`` and ``value``."""
    frames = []
    for device in splits:
        own = steps.of(*device.device.pids)
        bounds: tuple[Times, Times] = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        for name, part in zip(PARTS, device.parts, strict=True):
            frames.append(pl.DataFrame({"value": part.covered(*bounds)}).select(pl.lit(name).alias("part"), "value"))
    return pl.concat(frames)


def drained(device: DeviceSplit) -> int:
    """Return how long the device was idle in gaps that began while the host waited: it had nothing queued then."""
    idle = device.idle
    began_waiting = device.host.waiting.contains(np.maximum(idle.starts - 1, 0)) | device.host.waiting.contains(
        idle.starts
    )
    return int((idle.ends - idle.starts)[began_waiting].sum())
