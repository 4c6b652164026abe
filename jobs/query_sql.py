"""The SQL of a look-up, for both engines.

They differ in one thing here: in a Spark literal a backslash is an escape, in DataFusion's it is itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from schemas.layouts.errors import LayoutError
from schemas.layouts.message_id import parse_message_id


class Engine(StrEnum):
    """What answers."""

    DELTALAKE = "deltalake"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a message must be like; None and empty are no condition. Times are store times, the last exclusive."""

    topics: Sequence[str] = ()
    queue_id: int | None = None
    kinds: Sequence[str] = ()
    keys: Sequence[str] = ()
    brokers: Sequence[str] = ()
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    where: str | None = None


def literal(value: str, engine: Engine) -> str:
    """A string as a SQL literal."""
    text = value.replace("'", "''") if engine is Engine.DELTALAKE else value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def timestamp_literal(moment: datetime.datetime) -> str:
    """A time as a SQL literal, in UTC."""
    return f"TIMESTAMP '{moment.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z'"


def predicates(conditions: Conditions, engine: Engine) -> list[str]:
    """The conditions as SQL; all must hold."""

    def one_of(column: str, values: Sequence[str]) -> list[str]:
        return [f"{column} IN ({', '.join(literal(value, engine) for value in values)})"] if values else []

    found = one_of("broker", conditions.brokers) + one_of("topic", conditions.topics) + one_of("kind", conditions.kinds)
    if conditions.queue_id is not None:
        found.append(f"queue_id = {conditions.queue_id}")
    if conditions.keys:
        found.append(
            "(" + " OR ".join(f"array_contains(keys, {literal(key, engine)})" for key in conditions.keys) + ")"
        )
    # The partition column is named as well: then partitions outside the time are not even listed.
    if conditions.start is not None:
        found.append(f"store_timestamp >= {timestamp_literal(conditions.start)}")
        found.append(f"store_date >= DATE '{conditions.start.astimezone(datetime.UTC):%Y-%m-%d}'")
    if conditions.end is not None:
        found.append(f"store_timestamp < {timestamp_literal(conditions.end)}")
        found.append(f"store_date <= DATE '{conditions.end.astimezone(datetime.UTC):%Y-%m-%d}'")
    if conditions.where:
        found.append(f"({conditions.where})")
    return found


def id_predicates(message_id: str, engine: Engine) -> list[str]:
    """What to look for when a message id is given, most likely first.

    An offset message id and a client's UNIQ_KEY look alike: only the table tells which of them a text is. The offset
    inside the first makes for a search in few files.
    """
    found = []
    try:
        offset = parse_message_id(message_id).physical_offset
        found.append(f"physical_offset = {offset} AND msg_id = {literal(message_id.upper(), engine)}")
    except LayoutError:
        pass
    found.append(f"unique_key = {literal(message_id, engine)}")
    return found


def select(
    table: str, columns: Sequence[str], where: Sequence[str], order: Sequence[str], limit: int, engine: Engine
) -> str:
    """A SELECT; a limit of 0 is none."""
    quote = '"' if engine is Engine.DELTALAKE else "`"
    names = ", ".join(f"{quote}{name}{quote}" for name in columns) or "*"
    sql = f"SELECT {names} FROM {table}"
    if where:
        sql += " WHERE " + " AND ".join(where)
    if order:
        sql += " ORDER BY " + ", ".join(order)
    return sql + (f" LIMIT {limit}" if limit else "")
