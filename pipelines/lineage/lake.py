"""A lake as an object, for support tools and notebooks.

    import commitlake

    lake = commitlake.open("/data/lake")
    story = lake.lineage(key="order-4711")
    for outcome in story.outcomes:
        print(outcome.text)
    for record in lake.records(key="order-4711"):
        print(record.stored_at, record.topic, lake.body(record))

It needs neither Spark nor a JVM and keeps nothing open. Each call reads the lake's current state. Errors of a question
or a lake are `commitlake.schemas.errors.CommitLakeError`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from commitlake.connectors.lake.lake import Lake as Tables
from commitlake.pipelines.lineage.answer import records_of, rows_of, story_and_rows
from commitlake.pipelines.lineage.masked import mask_story
from commitlake.pipelines.lineage.story import MAX_RECORDS, Question, Record, Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph, topic_graph
from commitlake.schemas.errors import UsageError
from commitlake.schemas.times import with_zone


class Lake:
    """A lake that can be queried.

    Args:
        root: A folder, or `s3://bucket/prefix`; credentials come from the environment, as for any AWS tool.
        bodies: Root folder of the packs; by default `bodies` in the lake.

    Raises:
        LakeError: The root is not a valid location.
    """

    def __init__(self, root: str, *, bodies: str | None = None) -> None:
        self.paths = Tables(root)
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
        """Return the story of the messages of a key, an id or a place; without steps if there are none.

        Args:
            key: A business key.
            message_id: An offset message id, or a client's message id.
            place: Broker and physical offset of a record.
            start: Only records stored at or after this time; UTC if it has no time zone.
            end: Only records stored before this time.
            depth: Number of edges to follow from these records; None for all.
            related_by: A property; records with the same value of it are included.
            limit: Largest number of matching records; if there are more, the newest are taken. `Story.not_shown` has
                the rest.
            bodies: True to read the bodies of records.
            masks: Rules such as `body.email=hash`, as for `commitlake lineage --mask`.
            mask_key: Key for hashes of the masks.

        Raises:
            UsageError: Not exactly one of key, id and place is given.
            ReplayError: A mask is invalid, or needs a key.
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
        """Return the records of a key, an id or a place in time order, without further steps.

        Arguments and errors are those of `lineage`. If there are more records than the limit, the newest are taken.
        """
        return records_of(self.paths, Question(key, message_id, place, _zoned(start), _zoned(end), limit=limit))

    def body(self, record: Record | tuple[str, int] | str) -> bytes | None:
        """Return the decompressed body of a message; None if the lake does not have it.

        Args:
            record: A record, its broker and physical offset, or a message id that only one record has.

        Raises:
            UsageError: There is no such record, or more than one.
            PackError: The body cannot be read, or is a different one.
            BodyError: It cannot be decompressed.
        """
        from commitlake.connectors.lake.packs.body import fetch_body
        from commitlake.connectors.lake.packs.stores import open_store

        place = (record.broker, record.physical_offset) if isinstance(record, Record) else record
        question = Question(message_id=place) if isinstance(place, str) else Question(place=place)
        rows = rows_of(self.paths, question)
        if len(rows) != 1:
            raise UsageError(f"expected one record of {question.words}, found {len(rows)}")
        return fetch_body(open_store(self.bodies), rows[0])

    def topics(self, start: datetime.datetime, end: datetime.datetime) -> TopicGraph:
        """Return which topics feed which in a time range, by keys that pass from one topic to the other.

        Args:
            start: Records stored at or after this time; UTC if it has no time zone.
            end: Records stored before this time.
        """
        return topic_graph(self.paths, with_zone(start), with_zone(end))


def _zoned(moment: datetime.datetime | None) -> datetime.datetime | None:
    return None if moment is None else with_zone(moment)
