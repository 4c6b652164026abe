"""Every column of a message is in one of the profile's checksums; the order of rows is not."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from commitlake.pipelines.quality.checksums import column_hashes
from commitlake.schemas.tables.messages import BODY_PLACE, BODY_REF, MESSAGES
from commitlake.schemas.tables.profile import COLUMN_CHECKSUMS
from tests.support.profiles import NOON, SCHEMA, Row, message, messages, profile_of, table_of

ROW, LAKE, FORMAT, ORIGIN = (checksum.columns for checksum in COLUMN_CHECKSUMS[:4])
_OTHERS: dict[str, list[Any]] = {
    "keys": [[], ["k", "k"], ["K"], None],
    "properties": [[], [("KEYS", "K")], [("keys", "k")], [("KEYS", "k"), ("a", "")], [("KEYSk", "")], None],
    "tags": ["", "T", "t ", None],
    "priority": [0, 1],
    "born_timestamp": [NOON + datetime.timedelta(microseconds=1), None],
    "store_timestamp": [NOON + datetime.timedelta(microseconds=1)],
}
_PLACE = {"pack": "p", "frame_offset": 0, "frame_length": 99, "offset": 0, "length": 50}


def hash_of(row: Row) -> tuple[int, int]:
    table = table_of([row]).combine_chunks()
    return int(column_hashes(table, ROW)[0]), int(column_hashes(table, LAKE)[0])


def others(name: str) -> list[Any]:
    """Return other values of a column."""
    if name in _OTHERS:
        return _OTHERS[name]
    value = message(producer_group="g")[name]
    return [value + 1, None] if isinstance(value, int) else [f"{value}x", "", None]


def test_the_checksums_have_every_column_of_the_table() -> None:
    places = {f"{BODY_REF.name}.{name}" for name in BODY_PLACE.names}
    assert {name for checksum in COLUMN_CHECKSUMS for name in checksum.columns} == {*MESSAGES.names, *places} - {
        BODY_REF.name
    }


@pytest.mark.parametrize("name", ROW)
def test_another_value_of_any_column_is_another_hash(name: str) -> None:
    rows = [message(), *(message(**{name: value}) for value in others(name))]
    assert len({hash_of(row)[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("name", FORMAT)
def test_another_format_or_place_is_another_hash_of_the_format(name: str) -> None:
    rows = table_of([message(), *(message(**{name: value}) for value in others(name) if value is not None)])
    hashes = [int(column_hashes(rows.slice(row, 1).combine_chunks(), FORMAT)[0]) for row in range(rows.num_rows)]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("name", ORIGIN)
def test_another_origin_group_or_place_is_another_hash_of_the_origin(name: str) -> None:
    rows = table_of([message(producer_group="g"), *(message(**{name: value}) for value in others(name) if value)])
    hashes = [int(column_hashes(rows.slice(row, 1).combine_chunks(), ORIGIN)[0]) for row in range(rows.num_rows)]
    assert len(set(hashes)) == len(hashes)


def test_another_place_of_the_body_is_another_hash() -> None:
    places: list[Any] = [_PLACE | {name: value} for name, value in (("pack", "q"), ("offset", 1), ("length", 51))]
    places += [_PLACE | {"frame_offset": 1}, _PLACE | {"frame_length": 98}, _PLACE, None]
    assert len({hash_of(message(body_ref=place))[1] for place in places}) == len(places)
    assert len({hash_of(message(body_ref=place))[0] for place in places}) == 1


def test_another_date_is_another_hash() -> None:
    day = datetime.timedelta(days=1)
    times = [NOON, NOON + day, datetime.datetime(1969, 12, 30, tzinfo=datetime.UTC), None]
    assert len({hash_of(message(store_timestamp=time))[1] for time in times}) == len(times)


def test_texts_of_any_length_and_nulls_are_hashed_by_row() -> None:
    texts = ["x" * length for length in range(70)]
    rows = [message(number, unique_key=text, keys=[text, text], tags=text) for number, text in enumerate(texts)]
    rows[7]["keys"] = rows[9]["unique_key"] = None
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    whole = column_hashes(table.combine_chunks(), ROW).tolist()
    assert len(set(whole)) == len(rows)
    assert [int(column_hashes(table.slice(row, 1), ROW)[0]) for row in range(len(rows))] == whole
    assert column_hashes(table_of(rows), ROW).tolist() == whole  # dictionaries
    assert column_hashes(table.slice(0, 0), ROW).tolist() == []


def test_a_profile_sums_the_hashes_in_any_order() -> None:
    rows = messages(range(100))
    (once,), (again,) = profile_of(rows).to_pylist(), profile_of(rows[::-1]).to_pylist()
    assert once == again
    (other,) = profile_of([*rows[:-1], rows[-1] | {"tags": "T"}]).to_pylist()
    assert {name for name in once if once[name] != other[name]} == {"row_checksum"}
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert once["row_checksum"] == int(column_hashes(table, ROW).sum())
