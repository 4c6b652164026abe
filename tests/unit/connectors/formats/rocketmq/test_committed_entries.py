"""DLedger logs: their records are those of a plain log, up to the last one that the group has committed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import commitlake
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.snapshots import StoreRange, take_snapshot
from commitlake.connectors.reading.stores import find_stores, segment_size
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.dledger_stores import FOLDER, append_dledger_log, commit, take_indexes_away
from tests.support.indexed_stores import SEGMENT_BYTES, plan_of, read_splits, write_indexed_store
from tests.support.lakes import archive_store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a plain store of several segments."""
    return write_indexed_store(tmp_path_factory.mktemp("made") / "store", count=200)


def records_of(root: Path) -> list[bytes]:
    """Return the bytes of each record of a plain store."""
    found = []
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    for record in walk_store(store, segment_size(store)):
        if record.message is not None:
            path = root / "commitlog" / record.segment
            start = record.span.start - int(path.name)
            found.append(path.read_bytes()[start : start + record.message.size])
    return found


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Return a store with a DLedger log only."""
    root = Path(shutil.copytree(made, tmp_path / "broker-a" / "store"))
    shutil.rmtree(root / "commitlog")
    take_indexes_away(root)
    append_dledger_log(root, records_of(made), SEGMENT_BYTES)
    return root


def keys_of(root: Path) -> list[Sequence[str] | None]:
    """Return the keys of each record, by the plain reader and by the compiled one, which must agree."""
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    plain = [each.message for each in walk_store(store, segment_size(store)) if each.message is not None]
    compiled = list(read_splits(plan_of(root).splits))
    end = range_of(root).end
    assert [each.physical_offset for each in compiled] == [
        each.physical_offset for each in plain if each.physical_offset < end
    ]
    return [each.keys for each in compiled]


def range_of(root: Path) -> StoreRange:
    (found,) = take_snapshot(find_stores(str(root), formats=COMMITLOGS)).ranges.values()
    return found


def test_every_record_is_read(made: Path, root: Path) -> None:
    assert keys_of(root) == keys_of(made)
    assert len(list((root / FOLDER / "data").iterdir())) > 2
    assert range_of(root).newer == ()


def test_log_goes_on_in_dledger_after_a_plain_one(made: Path, root: Path) -> None:
    shutil.rmtree(root / FOLDER)
    shutil.copytree(made / "commitlog", root / "commitlog")
    append_dledger_log(root, records_of(made), SEGMENT_BYTES, start=8 * SEGMENT_BYTES)
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    bases = [segment.base_offset for segment in store.segments]
    assert bases == sorted(bases)
    assert bases[-1] > 8 * SEGMENT_BYTES
    found = [each.message.keys for each in walk_store(store, segment_size(store)) if each.message is not None]
    assert found == 2 * keys_of(made)


def test_log_of_a_broker_that_was_switched_back_is_the_plain_one(made: Path, root: Path) -> None:
    shutil.copytree(made / "commitlog", root / "commitlog")
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    assert {Path(segment.path).parent for segment in store.segments} == {root / "commitlog"}
    (root / "commitlog" / max(path.name for path in (root / "commitlog").iterdir())).unlink()
    assert "has segments of the same offsets: move the log away" in " ".join(range_of(root).newer)


def test_what_the_group_has_not_committed_is_not_read(root: Path) -> None:
    everything = keys_of(root)
    commit(root, 120)
    assert keys_of(root) == everything[:121]
    assert range_of(root).tail_bytes > 0
    commit(root, -1)
    assert keys_of(root) == []


def test_entries_that_are_committed_later_are_archived_by_the_next_run(root: Path, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    commit(root, 60)
    archive_store(root, lake, "a")
    commit(root, 199)
    archive_store(root, lake, "a")
    rows = lake_offsets(lake)
    assert len(rows) == len(set(rows)) == 200


def lake_offsets(lake: Lake) -> list[int]:

    return [
        row["physical_offset"] for row in commitlake.open(lake.root).messages(columns=["physical_offset"]).to_pylist()
    ]


@pytest.mark.parametrize("text", ["", "committedIndex=", "committedIndex=" + "9" * 5000, "endIndex=199\n", "\0" * 40])
def test_checkpoint_that_is_damaged_is_replaced_by_its_copy(
    root: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    everything = keys_of(root)
    commit(root, 120)
    checkpoint = root / FOLDER / "checkpoint"
    checkpoint.rename(root / FOLDER / "checkpoint.bak")
    checkpoint.write_text(text)
    assert keys_of(root) == everything[:121]
    (root / FOLDER / "checkpoint.bak").unlink()
    assert keys_of(root) == everything
    assert "no checkpoint of DLedger tells which messages are committed" in caplog.text


def test_link_in_place_of_the_folder_is_an_error(root: Path) -> None:
    (root / FOLDER).rename(root.parent / "elsewhere")
    (root / FOLDER).symlink_to(root.parent / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        find_stores(str(root), formats=COMMITLOGS)


def test_header_without_its_record_is_damage(root: Path) -> None:
    path = root / FOLDER / "data" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[24:32] = (7).to_bytes(8, "big")  # the position in the first header
    path.write_bytes(data)
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    first = next(iter(walk_store(store, segment_size(store))))
    assert (first.span.start, first.span.end) == (0, 48)
    assert first.message is None
