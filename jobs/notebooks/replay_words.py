"""A replay in words, and the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from commitlake.jobs.cli.durations import duration_text
from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.notebooks.replaying import Replayed
from commitlake.pipelines.replay.groups.outcomes import State
from commitlake.pipelines.replay.planning import OverTime, QueueChoice
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import plain_text


def answer(choice: Sequence[QueueChoice], rate: float | None) -> Iterator[str]:
    """Yield sentences about a dry run."""
    if not choice:
        yield "No message matches: there is nothing to send."
        return
    messages, size = sum(queue.messages for queue in choice), sum(queue.bytes for queue in choice)
    topics = sorted({queue.topic for queue in choice})
    times = [moment for queue in choice for moment in (queue.first_at, queue.last_at) if moment is not None]
    stored = f"from {plain_text(min(times))} to {plain_text(max(times))} UTC" if times else "at unknown times"
    yield (
        f"{count_text(messages, 'message')} of {count_text(len(topics), 'topic')} ({', '.join(topics[:5])}"
        f"{', …' if len(topics) > 5 else ''}), {size_text(size)} in the log, stored {stored}."
    )
    if rate is not None:
        yield f"At {rate:g} messages/s, sending takes {messages / rate:,.0f} s."


def queue_rows(choice: Sequence[QueueChoice]) -> Iterator[dict[str, Any]]:
    """Yield a row for each queue that has selected messages."""
    for queue in choice:
        yield {
            "store": queue.broker,
            "topic": queue.topic,
            "queue": queue.queue_id,
            "messages": queue.messages,
            "bytes": queue.bytes,
            "first offset": queue.first_offset,
            "last offset": queue.last_offset,
            "first": queue.first_at,
            "last": queue.last_at,
        }


def window_rows(found: OverTime) -> Iterator[dict[str, Any]]:
    """Yield a row for each window with messages."""
    for place, start in enumerate(found.starts):
        counts = {topic: counts[place] for topic, counts in found.messages.items() if counts[place]}
        if counts:
            yield {"from": start, "messages": sum(counts.values()), "topics": sorted(counts)}


def picture(found: OverTime) -> bytes:
    """Draw the selected messages by window and topic."""
    from commitlake.jobs.notebooks import plots

    ordered = sorted(found.messages.items(), key=lambda item: (-sum(item[1]), item[0]))
    title = f"Selected messages by topic ({duration_text(found.step)})"
    return plots.columns(title, found.starts, {topic: list(counts) for topic, counts in ordered}, "messages")


def sent(replayed: Replayed | None) -> Iterator[str]:
    """Yield sentences about what was sent, after an empty line."""
    yield ""
    if replayed is None:
        yield "Nothing was sent: this is a dry run. To send, set the parameter namesrv to the target's name servers."
        return
    plan, counts = replayed.plan, replayed.counts
    was = "is" if replayed.is_new else "was sent by an earlier run, and is not sent again (again=yes does): it is"
    yield (
        f"Replay {plan.replay_id} to {plan.target.name_servers} {was} finished: {counts.sent:,} of {plan.wanted:,} "
        "messages are there."
    )
    if counts.failed:
        yield f"{count_text(counts.failed, 'message')} could not be sent: see the table replay_messages."
    if not replayed.groups:
        yield "No group in the target consumes them."


def group_rows(replayed: Replayed | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each group that consumes what was sent."""
    for one in replayed.groups if replayed is not None else ():
        yield {
            "group": one.group,
            "messages": one.rows.num_rows,
            **{state.text: one.count(state) for state in State},
            "retried": len(one.retries),
        }
