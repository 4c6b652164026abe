"""A lake as an object, for support tools and notebooks.

    import commitlake

    lake = commitlake.open("/data/lake")
    story = lake.lineage(key="order-4711")
    for outcome in story.outcomes:
        print(outcome.text)
    for record in lake.records(key="order-4711"):
        print(record.stored_at, record.topic, lake.body(record))

It needs neither Spark nor a JVM, keeps nothing open, and each call sees the lake as it is then. What is wrong with a
question or a lake is a `commitlake.schemas.errors.CommitLakeError`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.lineage.answer import records_of, rows_of, story_and_rows
from commitlake.pipelines.lineage.masked import mask_story
from commitlake.pipelines.lineage.question import MAX_RECORDS, LineageError, Question
from commitlake.pipelines.lineage.story import Record, Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph, topic_graph
from commitlake.schemas.times import with_zone


class Lake:
    """A lake.

    Args:
        root: A folder, or `s3://bucket/prefix`; credentials come from the environment, as for any AWS tool.
        bodies: Where the packs of bodies are; `bodies` in the lake where not given.

    Raises:
        LakeError: It cannot be in such a place.
    """

    def __init__(self, root: str, *, bodies: str | None = None) -> None:
        self.paths = LakePaths(root)
        self.bodies = bodies or self.paths.bodies

    def __repr__(self) -> str:
        return f"commitlake.open({self.paths.root!r})"

    def lineage(
        self,
        *,
        key: str | None = None,
        message_id: str | None = None,
        place: tuple[str, int] | None = None,
        start: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
        depth: int | None = None,
        related_by: str | None = None,
        limit: int = MAX_RECORDS,
        bodies: bool = False,
        masks: Sequence[str] = (),
        mask_key: bytes = b"",
    ) -> Story:
        """Return what happened to the messages of a key, an id or a place; a story without steps where there is none.

        Args:
            key: A business key.
            message_id: An offset message id, or a client's message id.
            place: Broker and physical offset of a record.
            start: Only records that were stored from then on; UTC where it has no zone.
            end: Only records that were stored before.
            depth: How many edges to follow from these records; None for all.
            related_by: A property: records with the same value of it are in the story, too.
            limit: Records of the question that are in the story; of more, the newest. `Story.not_shown` has the rest.
            bodies: Whether the records get their bodies.
            masks: Rules such as `body.email=hash`, as for `commitlake lineage --mask`.
            mask_key: Of the hashes.

        Raises:
            LineageError: Not exactly one of key, id and place is given.
            LakeError: There is no lake.
            QueryError: A table cannot be read.
            ReplayError: A mask is none, or needs a key.
        """
        question = Question(key, message_id, place, _zoned(start), _zoned(end), depth, related_by, limit)
        story, rows = story_and_rows(self.paths, question)
        if bodies:
            from commitlake.pipelines.lineage.bodies import with_bodies

            story = with_bodies(story, rows, self.bodies)
        if masks:
            from commitlake.pipelines.masking.masks import check_key, parse_mask

            rules = [parse_mask(text) for text in masks]
            check_key(rules, mask_key)
            story = mask_story(story, rules, mask_key)
        return story

    def records(
        self,
        *,
        key: str | None = None,
        message_id: str | None = None,
        place: tuple[str, int] | None = None,
        start: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
        limit: int = MAX_RECORDS,
    ) -> list[Record]:
        """Return the records of a key, an id or a place in time order, without what else is known of them.

        The arguments, and what is raised, are those of `lineage`; of more records than the limit, the newest.
        """
        return records_of(self.paths, Question(key, message_id, place, _zoned(start), _zoned(end), limit=limit))

    def body(self, record: Record | tuple[str, int] | str) -> bytes | None:
        """Return the body of a message, decompressed; None where the lake has none.

        Args:
            record: A record, broker and physical offset of one, or a message id that one record has.

        Raises:
            LineageError: There is no such record, or there are several.
            PackError: The body cannot be had, or is another.
            BodyError: It cannot be decompressed.
        """
        from commitlake.connectors.lake.packs.body import fetch_body
        from commitlake.connectors.lake.packs.stores import open_store

        place = (record.broker, record.physical_offset) if isinstance(record, Record) else record
        question = Question(message_id=place) if isinstance(place, str) else Question(place=place)
        rows = rows_of(self.paths, question)
        if len(rows) != 1:
            raise LineageError(f"expected one record of {question.words}, found {len(rows)}")
        return fetch_body(open_store(self.bodies), rows[0])

    def topics(self, start: datetime.datetime, end: datetime.datetime) -> TopicGraph:
        """Return which topics feed which in a time, by keys that pass from one to the other.

        Args:
            start: Records that were stored from then on; UTC where it has no zone.
            end: Records that were stored before.
        """
        return topic_graph(self.paths, with_zone(start), with_zone(end))


def _zoned(moment: datetime.datetime | None) -> datetime.datetime | None:
    return None if moment is None else with_zone(moment)
