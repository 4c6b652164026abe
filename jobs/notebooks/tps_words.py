"""Rates and capacity in words, and the rows of their tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from commitlake.jobs.cli.durations import duration_text
from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.tps.notes import OWN_COPIES
from commitlake.pipelines.tps.coverage import Coverage
from commitlake.pipelines.tps.overview import Capacity
from commitlake.pipelines.tps.question import RatesQuestion
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import plain_text

Row = Mapping[str, Any]
GIB = 1 << 30


def answer(
    question: RatesQuestion,
    topics: Sequence[Row],
    total: Row | None,
    coverage: Coverage,
    found: Capacity,
    lacking_runs: int = 0,
) -> Iterator[str]:
    """Yield sentences about how much was stored, and when rates were highest.

    Args:
        topics: A row for each topic over the whole time.
        total: The row of all topics; None if no message was stored.
        coverage: Times that the lake covers.
        found: Bytes stored in a day.
        lacking_runs: Number of archive runs that `topic_minutes` lacks.
    """
    if lacking_runs:
        yield (
            f"topic_minutes lacks {count_text(lacking_runs, 'archive run')}, so these figures are too small: "
            "'commitlake archive --lake LAKE --backfill topic_minutes' adds them."
        )
    span = f"From {plain_text(question.start)} to {plain_text(question.end)} UTC"
    if total is None or not total["messages"]:
        yield f"{span} no message is archived."
    else:
        mean = total["messages_per_s"]
        yield (
            f"{span} the brokers stored {count_text(total['messages'], 'message')}, {rate_text(mean)} on average, and "
            f"{size_text(total['bytes'])} of log."
        )
        if total["sent"] < total["messages"]:
            yield f"Producers sent {total['sent']:,} of them; the others {OWN_COPIES}."
        yield (
            f"The busiest minute began at {plain_text(total['peak_at'])} UTC: {rate_text(total['peak_per_s'])}, "
            f"{total['peak_per_s'] / mean:,.0f} times the average."
        )
        worst = topics[0]
        share = 100 * worst["messages"] / total["messages"]
        messages = count_text(worst["messages"], "message")
        yield f"The busiest topic is {worst['topic']}: {messages}, {share:.0f} % of all."
        yield from _failures(total)
        yield _day(found)
    for broker, gaps in sorted(coverage.gaps.items()):
        for gap in gaps:
            if gap.start < question.end and question.start < gap.end:
                yield f"Of {broker} a part of the log from {plain_text(gap.start)} to {plain_text(gap.end)} is missing."


def _failures(total: Row) -> Iterator[str]:
    messages = total["messages"]
    found = [
        f"{100 * total[name] / messages:.2g} % are {what}"
        for name, what in (("retries", "retries"), ("dead_letters", "dead letters"))
        if total[name]
    ]
    if found:
        yield f"Of all messages, {' and '.join(found)}."


def _day(found: Capacity) -> str:
    if not found.days:
        return f"Less than a whole day is archived; at this rate, a day has {size_text(found.mean)} of log."
    if found.days == 1:
        return f"The one whole day that is archived has {size_text(found.mean)} of log."
    return (
        f"A day has {size_text(found.mean)} of log on average and {size_text(found.most)} at most, of "
        f"{count_text(found.days, 'archived whole day')}."
    )


def disk_answer(found: Capacity, gib: float) -> str:
    """Return a sentence on how long a disk of a given size holds the log."""
    days = found.days_on_disk(gib * GIB)
    disk = size_text(gib * GIB)
    if days is None:
        return f"Nothing was stored, so how long a disk of {disk} lasts is not known."
    length = "more than ten years" if days > 3650 else duration_text(datetime.timedelta(days=days))
    return f"A disk of {disk} holds the log of {length}, if each day is like the largest one."


def rate_text(messages_per_s: float) -> str:
    """Format a rate: `0.013 messages a second`."""
    number = f"{messages_per_s:,.3g}" if messages_per_s < 100 else f"{messages_per_s:,.0f}"
    return f"{number} {'message' if number == '1' else 'messages'} a second"


def topic_rows(topics: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield a row for each topic."""
    for row in topics:
        yield {
            "topic": row["topic"],
            "messages": f"{row['messages']:,}",
            "a second": row["messages_per_s"],
            "busiest minute, a second": row["peak_per_s"],
            "it began at": row["peak_at"],
            "bytes": size_text(row["bytes"]),
            "size p50": row["size_p50"],
            "size p99": row["size_p99"],
            "latency p50 ms": row["latency_ms_p50"],
            "latency p99 ms": row["latency_ms_p99"],
        }


def busiest_windows(windows: Sequence[Row], count: int = 20) -> Iterator[dict[str, Any]]:
    """Yield the windows with the most messages; each is of one topic."""
    for row in sorted(windows, key=lambda row: -(row["messages"] or 0))[:count]:
        if row["messages"]:
            yield {
                "from": row["window_start"],
                "topic": row["topic"],
                "messages": f"{row['messages']:,}",
                "a second": row["messages_per_s"],
                "bytes a second": size_text(row["bytes_per_s"]),
                "archived": row["archived"],
            }


def picture_of_messages(windows: Sequence[Row]) -> bytes:
    """Draw the messages per second of each topic, with gaps where nothing is archived."""
    return _picture("Messages per second", windows, "messages_per_s", "messages per second")


def picture_of_bytes(windows: Sequence[Row]) -> bytes:
    """Draw the bytes per second of each topic."""
    return _picture("Bytes of log per second", windows, "bytes_per_s", "bytes per second")


def _picture(title: str, windows: Sequence[Row], figure: str, unit: str) -> bytes:
    from commitlake.jobs.notebooks import plots

    times = sorted({row["window_start"] for row in windows})
    length = duration_text(times[1] - times[0]) if len(times) > 1 else "one window"
    return plots.lines(f"{title}, by topic ({length})", times, series(windows, figure, times), unit)


def series(windows: Sequence[Row], figure: str, times: Sequence[datetime.datetime]) -> dict[str, list[float | None]]:
    """Return one figure of each topic by window for a picture, the topics with the most messages first.

    Args:
        windows: Rows of topics by window.
        figure: The column.
        times: Starts of the windows.
    """
    places = {time: place for place, time in enumerate(times)}
    found: dict[str, list[float | None]] = {}
    totals: dict[str, int] = {}
    for row in windows:
        found.setdefault(row["topic"], [None] * len(times))[places[row["window_start"]]] = row[figure]
        totals[row["topic"]] = totals.get(row["topic"], 0) + (row["messages"] or 0)
    return {name: found[name] for name in sorted(found, key=lambda name: (-totals[name], name))}
