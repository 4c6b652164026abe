"""SQL of a look-up, for both engines."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from commitlake.connectors.lake.sql import (
    Engine,
    any_of,
    column_name,
    date_literal,
    has_any,
    text_literal,
    timestamp_literal,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions on a message; None and empty values are no condition. Times are store times, the end exclusive."""

    topics: Sequence[str] = ()
    queue_ids: Sequence[int] = ()
    kinds: Sequence[str] = ()
    keys: Sequence[str] = ()
    brokers: Sequence[str] = ()
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    where: str | None = None


def predicates(conditions: Conditions, engine: Engine) -> list[str]:
    """Return the conditions as SQL predicates, all of which must hold."""

    def one_of(column: str, values: Sequence[str]) -> list[str]:
        return [f"{column} IN ({', '.join(text_literal(value, engine) for value in values)})"] if values else []

    found = one_of("broker", conditions.brokers) + one_of("topic", conditions.topics) + one_of("kind", conditions.kinds)
    if conditions.queue_ids:
        found.append(f"queue_id IN ({', '.join(map(str, sorted(conditions.queue_ids)))})")
    if conditions.keys:
        found.append(has_any("keys", conditions.keys, engine))
    # The partition column is used as well, so that partitions outside of the time are not even listed.
    if conditions.start is not None:
        found.append(f"store_timestamp >= {timestamp_literal(conditions.start, engine)}")
        found.append(f"store_date >= {date_literal(conditions.start)}")
    if conditions.end is not None:
        found.append(f"store_timestamp < {timestamp_literal(conditions.end, engine)}")
        found.append(f"store_date <= {date_literal(conditions.end)}")
    if conditions.where:
        found.append(f"({conditions.where}\n)")  # on a line of its own, because the predicate may end with a comment
    return found


def id_predicates(message_id: str, engine: Engine) -> list[str]:
    """Return alternative predicates for a message id, the most likely one first.

    An offset message id and a client's UNIQ_KEY look alike; only the table shows which of them a text is. The offset in
    the former limits the search to few files.
    """
    found = []
    try:
        offset = parse_message_id(message_id).physical_offset
        found.append(f"physical_offset = {offset} AND msg_id = {text_literal(message_id.upper(), engine)}")
    except LayoutError:
        pass
    found.append(f"unique_key = {text_literal(message_id, engine)}")
    return found


@dataclass(frozen=True, slots=True)
class Question:
    """A query on one table.

    Attributes:
        table: name of the table in the lake.
        conditions: conditions on rows.
        message_ids: ids of the wanted messages; empty for any.
        columns: columns to return.
        order: columns to sort by, followed by `DESC` for descending order; nulls come last.
        limit: maximum number of rows; 0 for no limit.
        count: True to return only the number of rows.
        key_places: SQL for the locations of the messages of the wanted keys, if known.
        unique_key_places: function that returns such SQL for one of `message_ids` as a client's id. If there is only
            one, it is called only if no message has the id as its offset message id.
    """

    table: str
    conditions: Conditions
    message_ids: Sequence[str]
    columns: Sequence[str]
    order: Sequence[str]
    limit: int
    count: bool = False
    key_places: str | None = None
    unique_key_places: Callable[[str], str | None] | None = None

    def statements(self, name: str, engine: Engine) -> Iterator[str]:
        """Yield SQL statements for an engine that calls the table `name`; stop at the first that finds rows."""
        if len(self.message_ids) != 1 or self.count:
            yield self._select(name, self.where(engine), engine)
            return
        fixed = self._fixed(engine)
        for condition in self._wanted_ids(self.message_ids[0], engine):
            yield self._select(name, [*fixed, condition], engine)

    def where(self, engine: Engine) -> list[str]:
        """Return the conditions of a single statement, in which a message id may be of either kind."""
        if not self.message_ids:
            return self._fixed(engine)
        wanted = [f"({part})" for each in self.message_ids for part in self._wanted_ids(each, engine)]
        return [*self._fixed(engine), any_of(wanted)]

    def _fixed(self, engine: Engine) -> list[str]:
        places = [] if self.key_places is None else [self.key_places]
        return predicates(self.conditions, engine) + places

    def _wanted_ids(self, message_id: str, engine: Engine) -> Iterator[str]:
        *by_offset, by_unique_key = id_predicates(message_id, engine)
        yield from by_offset
        places = None if self.unique_key_places is None else self.unique_key_places(message_id)
        yield by_unique_key if places is None else f"({by_unique_key} AND {places})"

    def _select(self, name: str, where: Sequence[str], engine: Engine) -> str:
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        if self.count:
            return f"SELECT count(*) FROM {name}{condition}"
        columns = ", ".join(column_name(column, engine) for column in self.columns)
        order = ", ".join(_sort_key(key, engine) for key in self.order)
        limit = f" LIMIT {self.limit}" if self.limit else ""
        return f"SELECT {columns} FROM {name}{condition} ORDER BY {order}{limit}"


def _sort_key(key: str, engine: Engine) -> str:
    column, _, direction = key.partition(" ")
    return f"{column_name(column, engine)} {direction or 'ASC'} NULLS LAST"
