"""Export a trace for https://ui.perfetto.dev: every event on its thread or stream, arrows from calls to kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import numpy as np
import polars as pl

from pasta.exporters.perfetto.lanes import Lanes
from pasta.exporters.perfetto.packets import PacketWriter
from pasta.exporters.perfetto.timeline import PROCESS, TIMELINES, Counter, Timeline, counters
from pasta.exporters.perfetto.tracks import Tracks
from pasta.exporters.perfetto.windows import in_order
from pasta.tools.base import TraceView

#: Called with a number of rows that were done.
Advance = Callable[[int], None]

# Spreads process numbers over the 64 bits of a flow id, so that (process, correlation) pairs do not meet.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def write(trace: TraceView, file: BinaryIO, advance: Advance = lambda rows: None) -> int:
    """Write ``trace`` to ``file`` and return the number of events; rows without a start time are left out.

    Needs memory for a window of rows and for the distinct names, whatever the size of the trace.
    """
    packets = PacketWriter(file)
    tracks = Tracks(trace, packets)
    # Perfetto's times are unsigned; an event may precede the trace's time 0.
    span = trace.manifest.get("time_span_ns")
    shift = -min(0, span[0]) if span else 0
    for timeline in TIMELINES:
        rows = timeline.rows(trace)
        if rows is not None:
            _write_timeline(timeline, rows, tracks, packets, shift, advance)
    for counter in counters(trace):
        _write_counter(counter, tracks, packets, shift, advance)
    return packets.events


def _write_timeline(
    timeline: Timeline, rows: pl.LazyFrame, tracks: Tracks, packets: PacketWriter, shift: int, advance: Advance
) -> None:
    lanes = Lanes()
    keys = [*PROCESS, *timeline.owner]
    longest_first = -pl.col("end_ns").fill_null(pl.col("start_ns"))
    for window in in_order(rows, [longest_first, pl.col("level")]):
        owners = window.select(keys).unique(maintain_order=True).rows()
        bases = [tracks.of(timeline.kind, owner) for owner in owners]
        base = _mapped(window, keys, owners, bases)
        ends = window["end_ns"].fill_null(window["start_ns"])
        lane = lanes.place(base.to_list(), window["start_ns"].to_list(), ends.to_list())
        track = base
        if any(lane):
            owner_of = dict(zip(bases, owners, strict=True))
            track = pl.Series(
                [b if n == 0 else tracks.lane(timeline.kind, owner_of[b], n) for b, n in zip(base, lane, strict=True)],
                dtype=pl.UInt64,
            )
        process = _mapped(window, keys, owners, [tracks.process(owner[:2]) for owner in owners])
        packets.slices(
            window.drop(*keys, "level").with_columns(
                pl.col("start_ns", "end_ns") + shift, track=track, flow=_flow_ids(process, window["flow"])
            )
        )
        advance(window.height)


def _write_counter(counter: Counter, tracks: Tracks, packets: PacketWriter, shift: int, advance: Advance) -> None:
    keys = [*PROCESS, *counter.owner, "name"]
    totals: dict[int, int] = {}
    for window in in_order(counter.rows):
        owners = window.select(keys).unique(maintain_order=True).rows()
        numbers = [tracks.counter(owner[:-1], owner[-1]) for owner in owners]
        track = _mapped(window, keys, owners, numbers)
        values = pl.DataFrame({"track": track, "value": window["value"]})
        if counter.is_change:
            before = track.replace_strict(numbers, [totals.get(n, 0) for n in numbers], return_dtype=pl.Int64)
            values = values.with_columns(value=before + pl.col("value").cum_sum().over("track"))
            totals.update(values.group_by("track").last().rows())
        packets.values(track, window["start_ns"] + shift, values["value"])
        advance(window.height)


def _mapped(window: pl.DataFrame, keys: list[str], owners: list[tuple[object, ...]], numbers: list[int]) -> pl.Series:
    """Return for each row of ``window`` the number of its owner."""
    mapping = pl.DataFrame(owners, schema={key: window.schema[key] for key in keys}, orient="row")
    mapping = mapping.with_columns(number=pl.Series(numbers, dtype=pl.UInt64))
    return window.select(keys).join(mapping, on=keys, how="left", nulls_equal=True, maintain_order="left")["number"]


def _flow_ids(process: pl.Series, correlation: pl.Series) -> pl.Series:
    """Return an id of each (process, correlation id) pair, null where there is no correlation id."""
    ids = process.to_numpy() * _SPREAD ^ correlation.fill_null(0).to_numpy().view(np.uint64)
    return pl.select(pl.when(correlation.is_not_null()).then(pl.Series(ids))).to_series()
