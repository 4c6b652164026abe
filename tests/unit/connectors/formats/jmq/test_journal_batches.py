"""Rows that a task returns for a journal with records that no broker would write."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from tests.support.batches import rows_of, source_schema
from tests.support.journals import new_message, open_file, write_journal

MARK = b"p"
MOST = 65_535


def splits_with(tmp_path: Path, properties: bytes) -> list[Split]:
    """Return the splits of a journal of three messages, of which the second has these bytes as properties."""
    text = (MARK * (len(properties) - 2)).decode()
    sent = [new_message(0), new_message(1, properties=(("k", text),)), new_message(2)]
    data = open_file(sent, 1 << 18).replace(b"k=" + text.encode(), properties)
    (store,) = find_stores(str(write_journal(tmp_path, [(0, data)])), "b", formats=all_formats())
    return plan_splits(store, take_snapshot([store]).ranges["b"], 1 << 20)


@pytest.mark.parametrize(
    "properties",
    [
        b"k=" + b"\xff" * (MOST - 2),
        b"\xff" * (MOST - 2) + b"=v",
        b"=".join([b"\xff"] * (MOST // 2)),
        b"\n".join(b"%d=" % number for number in range(9000)) + b"\n\xff=",
        b"\n".join([b"\xff="] * (MOST // 3)),
        b"a=" + b"\\\xff" * (MOST // 2 - 1),
    ],
    ids=["value", "name", "names", "many", "repeated", "escaped"],
)
@pytest.mark.parametrize("columns", [(), ("properties",), ("keys",), ("keys", "unique_key", "msg_id")])
def test_properties_that_triple_in_size_when_repaired_are_read(
    tmp_path: Path, properties: bytes, columns: tuple[str, ...]
) -> None:
    rows = rows_of(splits_with(tmp_path, properties), Mode.PERMISSIVE, *columns, *(() if not columns else ("size",)))
    assert len(rows) == 3
    assert rows[1]["size"] == 67 + 4 + 1 + 6 + 1 + 6 + 1 + 7 + 2 + len(properties)
    if not columns:
        assert rows[1]["_corrupt_record"]["reason"] == "properties_encoding"  # type: ignore[index]
        assert rows[2]["_corrupt_record"] is None


def test_failfast_names_the_record_whose_properties_are_not_utf8(tmp_path: Path) -> None:
    splits = splits_with(tmp_path, b"k=" + b"\xff" * (MOST - 2))
    with pytest.raises(
        DamagedLogError, match=r"properties_encoding: expected properties in UTF-8, found byte 0xff at 2"
    ):
        list(read_split(splits[0], Request(source_schema(), Mode.FAILFAST)))
