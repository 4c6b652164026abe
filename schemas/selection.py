"""Selection of messages: the conditions by which every reader, query and command chooses them.

A selection is made once, from a command's options, a configuration or code, and is then compiled by the engine that
uses it, once for a task:

| engine | compiled by |
| --- | --- |
| DataFusion and Spark, on the lake's tables | `connectors.lake.sql.selection_conditions` |
| Spark, on DataFrames | `connectors.lake.spark_reader.selected` |
| the reader of logs | `connectors.reading.read_request.Filters.of` |
| HBase | `connectors.hbase.lookups.find_messages` |

An engine that cannot check a condition refuses the selection (`refuse_conditions`), because its rows would be too many.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX


def replace_invalid_utf8(text: str) -> str:
    """Return a text with U+FFFD in place of each byte that is not UTF-8, as in the columns of the tables."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions on messages, such as topics, keys and a time range; a message must meet all of them.

    An empty value or None is no condition; a condition with several values needs one of them. Texts are compared
    exactly. A message without a value (without a tag, a key or a time) does not meet a condition on it.

    Attributes:
        brokers: names of the stores.
        topics: topics in which the messages are stored.
        queue_ids: queues in which they are stored.
        kinds: kinds of record, such as `normal` or `retry`.
        tags: tags.
        keys: business keys.
        ids: offset message ids, or client message ids (UNIQ_KEY); the text alone does not show which of them it is.
        groups: consumer groups. Of messages, those that a group has given up (its dead letters) are selected; of
            consumer offsets, the group's own.
        start: earliest time.
        end: latest time, exclusive.
        is_by_birth: True if `start` and `end` apply to the time at which a producer created the message, not to the
            store time.
        where: SQL predicate on a row of `messages`.
    """

    brokers: Sequence[str] = ()
    topics: Sequence[str] = ()
    queue_ids: Sequence[int] = ()
    kinds: Sequence[str] = ()
    tags: Sequence[str] = ()
    keys: Sequence[str] = ()
    ids: Sequence[str] = ()
    groups: Sequence[str] = ()
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    is_by_birth: bool = False
    where: str | None = None

    @property
    def given_conditions(self) -> tuple[str, ...]:
        """Names of the conditions that are given."""
        return tuple(field.name for field in dataclasses.fields(self) if getattr(self, field.name))

    @property
    def column_values(self) -> list[tuple[str, Sequence[str | int]]]:
        """The conditions on columns of `messages` as pairs of a column and its accepted values."""
        dead_letters = [DLQ_PREFIX + group for group in self.groups]
        listed: tuple[tuple[str, Sequence[str | int]], ...] = (
            ("broker", self.brokers),
            ("topic", self.topics),
            ("topic", dead_letters),
            ("queue_id", self.queue_ids),
            ("kind", self.kinds),
            ("tags", self.tags),
        )
        return [(column, values) for column, values in listed if values]

    def refuse_conditions(self, engine: str, *names: str) -> None:
        """Raise an error if the selection has a condition that the given engine does not support.

        Args:
            engine: name of the engine, for the error.
            names: conditions that it cannot check.

        Raises:
            UsageError: for the first condition that is given.
        """
        for name in self.given_conditions:
            if name in names:
                raise UsageError(
                    f"{engine} cannot select messages by {name}: leave this condition out, or use another engine"
                )


ALL_MESSAGES = Selection()
