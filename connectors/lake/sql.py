"""Literals, names and conditions in SQL for the two query engines.

The engines differ: in Spark's literals a backslash is an escape, in DataFusion's it is an ordinary character; and
DataFusion's own timestamp literals and functions of time end in the year 2262. `selection_conditions` compiles a
selection of
messages for both.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.selection import Selection, replace_invalid_utf8
from commitlake.schemas.times import FIRST_USUAL_TIME, epoch_us, latest_plausible_time

_MAX_PRUNED = 20
"""Largest number of values of an IN for which DataFusion prunes files, row groups and pages."""
_SHOWN = 100
_NO_CODE = r"`[^`]*`|--[^\n]*|/\*.*?\*/"
_PARTS = re.compile(rf"""'[^']*'|"[^"]*"|{_NO_CODE}|[()]""", re.DOTALL)
_SPARK_PARTS = re.compile(rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|{_NO_CODE}|[()]""", re.DOTALL)
"""Texts, names, comments and parentheses; in Spark's texts, a backslash escapes the next character."""


class Engine(StrEnum):
    """The engine that runs the SQL: DataFusion, in the `deltalake` package, or Spark."""

    DELTALAKE = "deltalake"
    SPARK = "spark"


def text_literal(value: str, engine: Engine = Engine.DELTALAKE) -> str:
    """Return a string as a SQL literal, with U+FFFD in place of invalid UTF-8, as in the columns of the tables."""
    value = replace_invalid_utf8(value)
    text = value.replace("'", "''") if engine is Engine.DELTALAKE else value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def value_literal(value: str | int, engine: Engine = Engine.DELTALAKE) -> str:
    """Return a string or a number as a SQL literal."""
    return text_literal(value, engine) if isinstance(value, str) else str(value)


def timestamp_literal(moment: datetime.datetime, engine: Engine = Engine.DELTALAKE) -> str:
    """Return a time as a SQL value of a timestamp column's type."""
    return microseconds_literal(epoch_us(moment), engine)


def microseconds_literal(microseconds: int, engine: Engine = Engine.DELTALAKE) -> str:
    """Return a time, given in microseconds since 1970, as a SQL value of a timestamp column's type."""
    if engine is Engine.SPARK:
        return f"timestamp_micros({microseconds})"
    return f"arrow_cast({microseconds}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def plausible_time_condition(column: str, engine: Engine = Engine.DELTALAKE) -> str:
    """Return a SQL condition that a store time is between 2010 and tomorrow, so not from a wrong clock.

    A single message of a client or broker with a wrong clock must not decide which range of time a lake covers.
    """
    first, last = (timestamp_literal(time, engine) for time in (FIRST_USUAL_TIME, latest_plausible_time()))
    return f"{column} BETWEEN {first} AND {last}"


def window_start_expression(time_column: str, seconds: int, engine: Engine = Engine.DELTALAKE) -> str:
    """Return SQL for the start of the time window that contains a time; windows begin at multiples of their length.

    DataFusion's `date_bin` and `date_trunc` compute in nanoseconds, and fail for times before 1677 or after 2262.

    Args:
        time_column: name of a column of times.
        seconds: length of the windows.

    >>> window_start_expression("minute", 600, Engine.SPARK)
    'timestamp_micros(unix_micros(minute) - pmod(unix_micros(minute), 600000000))'
    """
    length = seconds * 1_000_000
    if engine is Engine.SPARK:
        return f"timestamp_micros(unix_micros({time_column}) - pmod(unix_micros({time_column}), {length}))"
    count = f"arrow_cast({time_column}, 'Int64')"
    # `%` has the sign of the dividend, and times before 1970 are negative, hence the second one.
    return f"arrow_cast({count} - ({count} % {length} + {length}) % {length}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def date_literal(date: datetime.date) -> str:
    """Return a date, or the UTC date of a time, as a SQL literal."""
    if isinstance(date, datetime.datetime):
        date = date.astimezone(datetime.UTC).date()
    return f"DATE '{date.isoformat()}'"


def quote_column_name(name: str, engine: Engine = Engine.DELTALAKE) -> str:
    """Return a column's name, quoted."""
    return f'"{name}"' if engine is Engine.DELTALAKE else f"`{name}`"


def in_condition(column: str, literals: Iterable[str]) -> str:
    """Return a SQL condition that a column has one of these values, written so that DataFusion can skip files.

    Args:
        column: the column's name, quoted if necessary.
        literals: the values as SQL literals.

    >>> in_condition("n", ["1", "2"])
    'n IN (1, 2)'
    >>> in_condition("n", [])
    'false'
    """
    values = list(literals)
    parts = [
        f"{column} IN ({', '.join(values[start : start + _MAX_PRUNED])})"
        for start in range(0, len(values), _MAX_PRUNED)
    ]
    return join_with_or(parts)


def join_with_or(conditions: Sequence[str]) -> str:
    """Join conditions with OR, as a balanced tree.

    DataFusion nests a chain of ORs as deep as it is long: with thousands, it takes minutes and then overflows its
    stack.

    >>> join_with_or(["a", "b", "c"])
    '(a OR (b OR c))'
    >>> join_with_or([])
    'false'
    """
    if len(conditions) < 2:
        return conditions[0] if conditions else "false"
    middle = len(conditions) // 2
    return f"({join_with_or(conditions[:middle])} OR {join_with_or(conditions[middle:])})"


def array_contains_any(column: str, values: Sequence[str], engine: Engine = Engine.DELTALAKE) -> str:
    """Return a condition that an array column contains one of the given texts.

    >>> array_contains_any("keys", ["a", "b"])
    "array_has_any(keys, make_array('a', 'b'))"
    """
    literals = ", ".join(text_literal(value, engine) for value in values)
    if len(values) == 1:
        return f"array_contains({column}, {literals})"
    if engine is Engine.SPARK:
        return f"arrays_overlap({column}, array({literals}))"
    return f"array_has_any({column}, make_array({literals}))"


def selection_conditions(
    selection: Selection, engine: Engine = Engine.DELTALAKE, *, has_dates: bool = True
) -> list[str]:
    """Return the conditions on messages as a list of SQL conditions on the table `messages`.

    Args:
        selection: the selection.
        engine: the engine that runs the SQL.
        has_dates: whether there is the partition column `store_date`, so that partitions outside of the time are not
            even listed.

    Raises:
        UsageError: if the predicate of the selection closes a parenthesis that it has not opened.

    >>> selection_conditions(Selection(topics=["orders"], queue_ids=[1, 2], tags=["paid"]))
    ["topic IN ('orders')", 'queue_id IN (1, 2)', "tags IN ('paid')"]
    """
    found = [
        in_condition(column, (value_literal(value, engine) for value in values))
        for column, values in selection.column_values
    ]
    if selection.keys:
        found.append(array_contains_any("keys", selection.keys, engine))
    if selection.ids:
        found.append(join_with_or([f"({part})" for each in selection.ids for part in id_conditions(each, engine)]))
    found += _time_conditions(selection, engine, has_dates=has_dates and not selection.is_by_birth)
    if selection.where:
        _check_predicate(selection.where, engine)
        found.append(f"({selection.where}\n)")  # on a line of its own, because the predicate may end with a comment
    return found


def _check_predicate(predicate: str, engine: Engine) -> None:
    """Refuse a predicate that closes a parenthesis which it has not opened: it would leave the other conditions out.

    Raises:
        UsageError: if it does.
    """
    depth = 0
    # Texts, names and comments match as a whole, so a parenthesis in them is not counted.
    for part in (_SPARK_PARTS if engine is Engine.SPARK else _PARTS).findall(predicate):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth < 0:
            raise UsageError(f"where: expected a condition, found a ')' without its '(' in {predicate[:_SHOWN]!r}")


def _time_conditions(selection: Selection, engine: Engine, *, has_dates: bool) -> list[str]:
    column = "born_timestamp" if selection.is_by_birth else "store_timestamp"
    found = []
    if selection.start is not None:
        found.append(f"{column} >= {timestamp_literal(selection.start, engine)}")
        if has_dates:
            # Redundant, but `store_date` is the partition: files of other days are not even opened.
            found.append(f"store_date >= {date_literal(selection.start)}")
    if selection.end is not None:
        found.append(f"{column} < {timestamp_literal(selection.end, engine)}")
        if has_dates:
            found.append(f"store_date <= {date_literal(selection.end)}")
    return found


def id_conditions(message_id: str, engine: Engine = Engine.DELTALAKE) -> list[str]:
    """Return SQL conditions for a message id, the most likely one first; a message must match one of them.

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
