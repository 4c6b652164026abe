"""Reads the bodies of a story's records, each with one ranged read from its pack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from commitlake.connectors.lake.packs.body_reader import fetch_body
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.reading.errors import BodyError
from commitlake.pipelines.lineage.message_history import Record, Story
from commitlake.pipelines.lineage.table_lookups import Row

MAX_BYTES = 64 << 20
"""Total size of the bodies in a story; bodies of later records are left out."""
_NONE = "the lake does not have its body"


def add_bodies_to_story(story: Story, rows: Iterable[Row], packs: PackStore) -> Story:
    """Add to the records of a message history their bodies, or the reason why a body cannot be read.

    Args:
        rows: Rows of `messages`, with references to bodies.
        packs: The lake's packs.
    """
    by_place = {(row["broker"], row["physical_offset"]): row for row in rows}
    room = MAX_BYTES
    steps = []
    for step in story.steps:
        record = step.record
        if record is None:
            steps.append(step)
            continue
        body: bytes | None = None
        problem: str | None = None
        if (record.body_size or 0) > room:
            problem = f"left out, because the bodies of this story are larger than {MAX_BYTES >> 20} MiB"
        else:
            try:
                body = fetch_body(packs, by_place[record.broker, record.physical_offset], max_bytes=room)
                problem = _NONE if body is None else None
            except (PackError, BodyError) as error:
                problem = str(error)
        room -= len(body or b"")
        steps.append(replace(step, record=_set_record_body(record, body, problem)))
    return replace(story, steps=steps)


def _set_record_body(record: Record, body: bytes | None, problem: str | None) -> Record:
    return replace(record, body=body, body_problem=problem)
