"""The histories of many keys as Arrow tables with the columns `LINEAGE`, one row for each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.lineage.history_reader import read_stories
from commitlake.pipelines.lineage.message_history import Edge, Outcome, Question, Step, Story
from commitlake.schemas.tables.lineage import CONSUMPTION, LINEAGE
from commitlake.schemas.times import MILLISECOND

_SCHEMA = arrow_schema(LINEAGE)
_TABLE_ROWS = 10_000
_OF_RECORD = ("broker", "physical_offset", "msg_id", "origin_topic", "matched")


def read_lineage(lake: Lake, keys: Sequence[str], question: Question) -> Iterator[pa.Table]:
    """Yield the history of the messages of each key, in tables of some thousand rows, at least one.

    Args:
        lake: The lake.
        keys: Business keys, each once.
        question: A question about one of them; its other values hold for all.
    """
    rows: list[dict[str, Any]] = []
    for key, (story, _) in zip(keys, read_stories(lake, keys, question), strict=True):
        rows += story_rows(key, story)
        if len(rows) >= _TABLE_ROWS:
            yield pa.Table.from_pylist(rows, _SCHEMA)
            rows = []
    yield pa.Table.from_pylist(rows, _SCHEMA)


def story_rows(key: str, story: Story) -> list[dict[str, Any]]:
    """Return a row for each step of a key's history; for a history without steps, one row without a step."""
    causes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    outcomes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for edge in story.edges:
        causes[edge.target].append(_cause(edge))
    for outcome in story.outcomes:
        outcomes[outcome.step].append(_outcome(outcome))
    whole = {
        "key": key,
        "as_of": story.as_of,
        "not_shown": story.not_shown,
        "cautions": list(story.cautions),
        "causes": [],
        "outcomes": [],
    }
    return [
        whole | _step(number, step) | {"causes": causes[step.id], "outcomes": outcomes[step.id]}
        for number, step in enumerate(story.steps, 1)
    ] or [whole]


def _step(number: int, step: Step) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "number": number,
        "id": step.id,
        "kind": str(step.kind),
        "at": step.at,
        "lane": step.lane,
        "title": step.title,
        "text": step.text,
        "missing": None if step.missing is None else step.missing.reason,
    }
    if step.record is not None:
        columns |= {name: getattr(step.record, name) for name in _OF_RECORD}
    if step.consumption is not None:
        columns["consumption"] = {name: getattr(step.consumption, name) for name in CONSUMPTION.names}
    return columns


def _cause(edge: Edge) -> dict[str, Any]:
    gap_ms = None if edge.gap is None else edge.gap // MILLISECOND
    return {"id": edge.source, "kind": str(edge.kind), "gap_ms": gap_ms, "text": edge.text}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "group": outcome.group,
        "state": str(outcome.state),
        "at": outcome.at,
        "proof": str(outcome.proof),
        "text": outcome.text,
    }
