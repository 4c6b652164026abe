"""A story as JSON, for programs, and as rows of its steps, for people.

Version 1 has

    version     1; a later version may add names, but does not change these
    asked       the question in words
    as_of       time up to which the lake has data; null for an empty lake
    steps       in time order: id, kind, at, lane, title, text, and one of
                    record       the columns of `messages`, matched, related_by, and with --body body or body_base64
                    consumption  group, host, attempt (1 for the first), cost_ms, succeeded, outcome
                    missing      reason (as in the table `edges`), text, name
    edges       kind (as in the table `edges`), source, target (ids of steps), gap_ms, text, joined_by
    outcomes    step, state, text, proof (trace, records, offsets or none), group (null for all), at
    cautions    sentences about data that was not read, is unknown, or was left out
    not_shown   number of matching records that are not in the story
    missing     sentences on messages that the lake has lost and that may belong to the story

Times are ISO 8601 in UTC with milliseconds; unknown values are null.
"""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

from commitlake.connectors.printable import escape_json
from commitlake.pipelines.lineage.message_history import Edge, Outcome, Record, Step, Story
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import MILLISECOND, format_iso_time

VERSION = 1
STEP_COLUMNS = (
    Column("time"), Column("gap", 1, is_number=True), Column("kind", 2), Column("lane", 4), Column("title"),
    Column("text", 3), Column("id", 5, is_whole=True),
)  # fmt: skip


def story_json(story: Story) -> str:
    """Return a message's story as a JSON document, which ends with a newline."""
    document = json.dumps(story_to_dict(story), ensure_ascii=False, indent=2)
    return escape_json(document.encode("utf-8", "backslashreplace").decode()) + "\n"


def story_to_dict(story: Story) -> dict[str, Any]:
    """Return a message's story as dictionaries and lists that can be written as JSON."""
    return {
        "version": VERSION,
        "asked": story.asked,
        "as_of": _time_text(story.as_of),
        "steps": [_step_to_dict(step) for step in story.steps],
        "edges": [_edge_to_dict(edge) for edge in story.edges],
        "outcomes": [_outcome_to_dict(outcome) for outcome in story.outcomes],
        "cautions": list(story.cautions),
        "not_shown": story.not_shown,
        "missing": list(story.missing),
    }


def _step_to_dict(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": step.id, "kind": str(step.kind), "at": _time_text(step.at), "lane": step.lane, "title": step.title,
        "text": step.text,
    }  # fmt: skip
    if step.record is not None:
        found["record"] = record_to_dict(step.record)
    if step.consumption is not None:
        one = step.consumption
        found["consumption"] = {
            "group": one.group, "host": one.host, "attempt": one.attempt, "cost_ms": one.cost_ms,
            "succeeded": one.succeeded, "outcome": one.outcome,
        }  # fmt: skip
    if step.missing is not None:
        found["missing"] = {"reason": step.missing.reason, "text": step.missing.text, "name": step.missing.name}
    return found


def record_to_dict(record: Record) -> dict[str, Any]:
    """Return a record of a message's story as a JSON-compatible dictionary."""
    found: dict[str, Any] = {
        "broker": record.broker, "physical_offset": record.physical_offset, "msg_id": record.msg_id,
        "unique_key": record.unique_key, "keys": list(record.keys), "tags": record.tags, "kind": record.kind,
        "topic": record.topic, "origin_topic": record.origin_topic, "queue_id": record.queue_id,
        "queue_offset": record.queue_offset, "born_at": _time_text(record.born_at),
        "stored_at": _time_text(record.stored_at),
        "born_host": record.born_host, "store_host": record.store_host, "reconsume_times": record.reconsume_times,
        "producer_group": record.producer_group, "body_size": record.body_size, "properties": dict(record.properties),
        "matched": record.matched, "related_by": record.related_by,
    }  # fmt: skip
    if record.body is not None:
        try:
            found["body"] = record.body.decode()
        except UnicodeDecodeError:
            found["body_base64"] = base64.b64encode(record.body).decode()
    if record.body_problem is not None:
        found["body_problem"] = record.body_problem
    return found


def _edge_to_dict(edge: Edge) -> dict[str, Any]:
    gap = None if edge.gap is None else edge.gap // MILLISECOND
    return {"kind": edge.kind, "source": edge.source, "target": edge.target, "gap_ms": gap, "text": edge.text,
            "joined_by": edge.joined_by}  # fmt: skip


def _outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    return {"step": outcome.step, "state": str(outcome.state), "text": outcome.text, "proof": str(outcome.proof),
            "group": outcome.group, "at": _time_text(outcome.at)}  # fmt: skip


def _time_text(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else format_iso_time(moment, "milliseconds")


def step_rows(story: Story) -> list[dict[str, Any]]:
    """Return one row, of a table for people, for each step of a message's story."""
    gaps = {edge.target: edge.gap for edge in story.edges}
    return [
        {
            "time": "" if step.at is None else format_iso_time(step.at, "milliseconds"),
            "gap": "" if (gap := gaps.get(step.id)) is None else approximate_duration_text(gap),
            "kind": str(step.kind), "lane": step.lane, "title": step.title, "text": step.text, "id": step.id,
        }
        for step in story.steps
    ]  # fmt: skip
