"""Pandas frames that the expectation suites check, made from a profile and data on the run.

Each has one row per window, topic or broker, starting with its key. A figure that has no meaning for a row has a value
that meets all expectations. Names are Arrow's strings, which Arrow groups and compares: pandas' own hash tables end a
string at a NUL, and would take the topics `orders` and `orders` with a NUL for one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import join_chunks
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.quality import compiled_profiling
from commitlake.pipelines.quality.expectation_input import BrokerFacts, RunFacts
from commitlake.pipelines.quality.profile_columns import WindowParts
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from commitlake.schemas.quality.expectation import Grain
from commitlake.schemas.tables.profile import KEY_COLUMNS, QUEUE_KEYS, RUNS, WINDOW_SECONDS

KEYS = {Grain.WINDOW: list(KEY_COLUMNS), Grain.TOPIC: ["broker", "topic"], Grain.BROKER: ["broker"]}
"""Columns that identify a row of each frame."""
_NAME = pd.ArrowDtype(pa.string())
_DTYPES = {pa.string(): _NAME}
_MAX_NAME = 255
_MANY_MESSAGES, _MANY_QUEUES = 1000, 4
_SUMMED = ["messages", "bytes", "lost_offsets"]
_OFFSETS_OF_THEIR_OWN = frozenset({Kind.HALF, Kind.OP})  # brokers rewrite these; no consumer reads them by offset
_CLIENTS = frozenset({Kind.NORMAL})


def build_window_frame(profile: pa.Table, run_facts: RunFacts) -> pd.DataFrame:
    """Return one row for each queue and time window: its counts, and comparisons with the windows before it.

    Args:
        profile: a merged table of `PROFILE`; all of a queue's windows, or none. A row without messages is the end of a
            queue in an earlier run: its offsets are compared, and it is not returned.

    Raises:
        ProfileError: if the table is not a profile.
    """
    parts = WindowParts.from_table(profile)
    windows = profile.drop_columns([RUNS.name]).to_pandas(types_mapper=_DTYPES.get)
    brokers, topics = profile.column("broker"), profile.column("topic")
    windows["kind"] = _map_to_values(topics, kind_of)
    windows["unnamed"] = _map_to_values(topics, lambda topic: not 0 < len(topic) <= _MAX_NAME).astype(bool)
    ordered = ~windows["kind"].isin(_OFFSETS_OF_THEIR_OWN).to_numpy()
    queues = windows.groupby(list(QUEUE_KEYS), sort=False, dropna=False).ngroup().to_numpy()
    lost, restarts = _gaps_between_runs(queues, parts)
    damaged = _map_to_values(brokers, lambda name: run_facts.brokers.get(name, BrokerFacts()).is_damaged).astype(bool)
    windows["lost_offsets"] = np.where(ordered, lost, 0)
    windows["unexplained_offsets"] = np.where(ordered & ~damaged, lost, 0)
    windows["queue_restarts"] = np.where(ordered, restarts, 0)
    windows["repeated_offsets"] = np.where(ordered, windows["duplicate_offsets"], 0)
    stretch = windows["last_physical_offset"] + windows["max_size"] - windows["first_physical_offset"]
    windows["bytes_beyond"] = (windows["bytes"] - stretch).clip(lower=0).fillna(0)
    is_new = windows["messages"].to_numpy() > 0
    return _add_time_columns(windows[is_new].reset_index(drop=True), queues[is_new], run_facts.now)


def _map_to_values(names: pa.ChunkedArray, get_value: Callable[[str], object]) -> Array:
    """Return `get_value(name)` for each name, as an array of objects; None for a null name."""
    encoded = join_chunks(names).dictionary_encode()
    values = [get_value(name) for name in encoded.dictionary.to_pylist()]
    of_code = np.empty(len(values) + 1, object)
    of_code[:-1] = values
    found: Array = of_code[encoded.indices.fill_null(-1).to_numpy()]
    return found


def _add_time_columns(windows: pd.DataFrame, queues: Array, now: datetime.datetime) -> pd.DataFrame:
    """Add by how many seconds the times of each window's messages are outside of it, in the future, or go back."""
    start, first, last = (
        _epoch_seconds(windows[name]) for name in ("window_start", "min_store_timestamp", "max_store_timestamp")
    )
    before = (start - first).clip(lower=0) + (last - (start + WINDOW_SECONDS)).clip(lower=0)
    windows["seconds_outside"] = before.fillna(0)
    windows["stored_s"] = first.fillna(now.timestamp())
    windows["seconds_ahead"] = (last - now.timestamp()).fillna(0)
    order = windows.assign(queue=queues, first_s=first, last_s=last).sort_values(
        ["queue", "first_physical_offset"], kind="stable"
    )
    earlier = order.groupby("queue", sort=False)["last_s"].shift()
    windows["seconds_back"] = (earlier - order["first_s"]).clip(lower=0).fillna(0)
    return windows


def _epoch_seconds(times: pd.Series[Any]) -> pd.Series[Any]:
    """Return times as seconds since 1970, including times outside the range of pandas' nanoseconds."""
    micros = times.to_numpy("datetime64[us]")
    return pd.Series((micros - np.datetime64(0, "us")) / np.timedelta64(1, "s"), times.index)


def _gaps_between_runs(queues: Array, parts: WindowParts) -> tuple[Array, Array]:
    """Return, for each time window, how many queue offsets are missing and how often the offsets step back.

    Offsets that are missing between two windows count for the later one. A window without known runs counts only by
    itself.
    """
    of_run = np.repeat(np.arange(len(queues)), parts.run_counts)
    order = np.lexsort((parts.runs[2], parts.runs[0], queues[of_run]))
    runs, of_run = parts.runs[:, order], of_run[order]
    # Between a window with runs and one without, gaps are unknown.
    blind = np.isin(queues, queues[~parts.known])
    same = (queues[of_run][1:] == queues[of_run][:-1]) & ~blind[of_run][1:]
    jumps = np.where(same, runs[2, 1:] - runs[3, :-1] - 1, 0)
    lost, restarts = (np.zeros(len(queues), np.int64) for _ in range(2))
    # `+=` would count an index that occurs several times only once.
    np.add.at(lost, of_run[1:], np.clip(jumps, 0, compiled_profiling.MAX_MISSING))
    np.add.at(restarts, of_run[1:], jumps < 0)
    own = parts.values["missing_offsets"], parts.values["restarts"]
    lost = np.minimum(np.where(blind, own[0], lost), compiled_profiling.MAX_MISSING)
    return lost, np.where(blind, own[1], restarts)


def build_topic_frame(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of each topic over all time windows, and for large topics the share of the largest queue."""
    by_queue = windows.groupby(list(QUEUE_KEYS), dropna=False)["messages"].sum()
    queues = by_queue.groupby(level=["broker", "topic"], dropna=False).agg(["max", "count"])
    found = windows.groupby(["broker", "topic"], dropna=False).agg(
        kind=("kind", "first"),
        messages=("messages", "sum"),
        bytes=("bytes", "sum"),
        max_size=("max_size", "max"),
        null_unique_key=("null_unique_key", "sum"),
        lost_offsets=("lost_offsets", "sum"),
        windows=("messages", "size"),
        first=("min_store_timestamp", "min"),
        last=("max_store_timestamp", "max"),
    )
    from_clients = found["kind"].isin(_CLIENTS)
    many = from_clients & (found["messages"] >= _MANY_MESSAGES) & (queues["count"] >= _MANY_QUEUES)
    found["queues"] = queues["count"]
    found["share_without_id"] = (found["null_unique_key"] / found["messages"]).where(from_clients, 0.0)
    found["largest_queue_share"] = (queues["max"] / found["messages"]).where(many, 0.0)
    found["dead_letters"] = found["messages"].where(found["kind"] == Kind.DLQ, 0)
    found["max_size"] = found["max_size"].fillna(0)
    return found.reset_index()


def sum_topics_by_broker(topics: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of topics by broker."""
    return topics.groupby("broker", dropna=False)[_SUMMED].sum().reset_index()


def build_broker_frame(topics: pd.DataFrame, run_facts: RunFacts) -> pd.DataFrame:
    """Return a row of sums for each broker; missing messages of the whole run count for the first broker.

    Args:
        topics: a row for each topic; or several concatenated tables of `sum_topics_by_broker`.
    """
    sums = sum_topics_by_broker(topics)
    without = [name for name in run_facts.brokers if name not in set(sums["broker"])]
    absent = pd.DataFrame({"broker": pd.Series(without, dtype=_NAME), **dict.fromkeys(_SUMMED, 0)})
    sums = pd.concat([sums, absent], ignore_index=True)
    known = [run_facts.brokers.get(name, BrokerFacts()) for name in sums["broker"]]
    for name in ("bad_ranges", "missing_ranges", "marked_rows"):
        sums[name] = np.array([getattr(broker, name) for broker in known], np.int64)
    logs = np.array([np.inf if broker.log_bytes is None else broker.log_bytes for broker in known], np.float64)
    sums["bytes_beyond_log"] = np.maximum(sums["bytes"].to_numpy() - logs, 0)
    uncounted = np.zeros(len(sums), np.int64)
    if run_facts.written is not None and len(sums):
        uncounted[0] = abs(run_facts.written - int(sums["messages"].sum()))
    sums["uncounted_messages"] = uncounted
    return sums
