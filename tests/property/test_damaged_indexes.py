"""Any bytes in queue files and IndexFiles give only rows, or bad ranges that are handled according to the mode."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.connectors.reading.errors import CommitLogError
from tests.support.hypothesis_profiles import load
from tests.support.index_entry_rows import Rows, read_index_rows, read_queue_rows
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store

load()
_FOLDERS = ("consumequeue", "index", "queue")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A store of each format."""
    root = tmp_path_factory.mktemp("stores")
    return [write_indexed_store(root / "rocketmq", count=120), write_jmq_store(root / "jmq", count=120)]


def damage(draw: st.DataObject, store: Path) -> None:
    """Overwrite, cut or lengthen some files."""
    files = sorted(path for folder in _FOLDERS for path in (store / folder).rglob("*") if path.is_file())
    for path in draw.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3)):
        data = bytearray(path.read_bytes())
        place = draw.draw(st.integers(0, len(data)))
        new = draw.draw(st.one_of(st.binary(max_size=64), st.integers(0, 100).map(bytes), st.just(b"\xff" * 40)))
        data[place : place + len(new)] = new
        path.write_bytes(data)
        if draw.draw(st.booleans()):
            os.truncate(path, max(0, len(data) + draw.draw(st.integers(-100, 100))))


def all_rows(store: Path, mode: str) -> list[Rows]:
    """Return the rows that both sources read from a store."""
    read = [read_queue_rows(store, mode=mode)]
    if (store / "index").is_dir():
        read += [read_index_rows(store, mode=mode, content=content) for content in ("entries", "slots", "headers")]
    return read


@given(draw=st.data())
def test_damage_is_a_bad_range_or_another_entry(stores: list[Path], tmp_path: Path, draw: st.DataObject) -> None:
    store = tmp_path / "store"
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(draw.draw(st.sampled_from(stores)), store)
    damage(draw, store)
    permissive, dropping = all_rows(store, "PERMISSIVE"), all_rows(store, "DROPMALFORMED")
    sound = [[row for row in rows if row["_corrupt_record"] is None] for rows in permissive]
    assert dropping == sound
    if any(row["_corrupt_record"] for rows in permissive for row in rows):
        with pytest.raises(CommitLogError, match=r"bytes \d+ to \d+: \w+: expected .*, found"):
            all_rows(store, "FAILFAST")
    else:
        assert all_rows(store, "FAILFAST") == sound
