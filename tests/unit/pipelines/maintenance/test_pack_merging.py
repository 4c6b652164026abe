"""Merged packs: bodies are found by old references, in any state that a killed merge leaves; erased ones in no file."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import BodyRef
from commitlake.connectors.lake.packs.merged_packs import pack_size, read_merged_index
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.connectors.lake.packs.pack_stores import PackOutput, PackStore
from commitlake.connectors.lake.packs.reader import read_body
from commitlake.connectors.storage.folder_storage import FolderStorage
from commitlake.pipelines.erasure.body_erasure import erase_bodies
from commitlake.pipelines.erasure.run import ErasureTarget, plan_erasure, run_erasure
from commitlake.pipelines.erasure.selection import KeysToErase
from commitlake.pipelines.maintenance import pack_merging as packs_module
from commitlake.pipelines.maintenance.pack_merging import (
    PackMerges,
    delete_merged_packs,
    find_merge_candidates,
    find_orphan_packs,
    merge_packs,
    plan_pack_merges,
    read_referenced_packs,
)
from tests.support.erased_lakes import KEY, traces, write_lake
from tests.support.lakes import FIRST_DATE, GrowingLake, prepared_lake, rows_of, shop_messages
from tests.support.packs import folder_store

DAY = datetime.timedelta(days=1)


def archive_runs(growing: GrowingLake, runs: int) -> None:
    """Archive several runs of a few messages of one date."""
    for run in range(runs):
        growing.write(shop_messages(5, seed=run))
        growing.archive()


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of four packs."""
    return prepared_lake(tmp_path, archive_runs, 4)


def files_of(growing: GrowingLake) -> list[PackFile]:
    return list(folder_store(growing.lake.bodies_root).list_packs())


def write(growing: GrowingLake, store: PackStore | None = None) -> PackMerges:
    """Do the first step of a merge, which leaves the small packs."""
    store = store or folder_store(growing.lake.bodies_root)
    last = read_last_commit(growing.lake)
    assert last is not None
    found = find_merge_candidates(files_of(growing), last.stores)
    named = read_referenced_packs(growing.lake, {file.store_date for file in found})
    bins, planned = plan_pack_merges(store, found, named, last.stores)
    assert not planned.left
    return merge_packs(store, bins)


def finish(growing: GrowingLake) -> list[str]:
    """Do the last step: wipe erased bodies, and delete the small packs."""
    return delete_merged_packs(
        folder_store(growing.lake.bodies_root),
        files_of(growing),
        lambda names: erase_bodies(growing.lake, names)[1],
    )


def merge(growing: GrowingLake) -> int:
    """Merge packs, and return how many there are then."""
    write(growing)
    assert finish(growing) == []
    return len(files_of(growing))


def content(growing: GrowingLake) -> dict[int, bytes]:
    """Return all bodies by physical offset; erased messages have none."""
    store = folder_store(growing.lake.bodies_root)
    rows = [row for row in rows_of(growing.lake.uri("messages")) if row["body_ref"] is not None]
    return {row["physical_offset"]: read_body(store, BodyRef(**row["body_ref"]), row["body_crc"]) for row in rows}


class CountingStore(PackStore):
    """A store that counts how often packs are listed."""

    lists = 0

    def list_packs(self, folder: str = "") -> Iterator[PackFile]:
        """See PackStore."""
        self.lists += 1
        yield from super().list_packs(folder)


def test_small_packs_of_a_date_become_one_in_which_old_references_find_their_bodies(growing: GrowingLake) -> None:
    before, refs = content(growing), [row["body_ref"] for row in rows_of(growing.lake.uri("messages"))]
    store = folder_store(growing.lake.bodies_root)
    read = [read_body(store, BodyRef(**ref)) for ref in refs]
    small = files_of(growing)
    assert merge(growing) == 1
    (merged,) = files_of(growing)
    name = parse_pack_name(merged.name)
    assert (name.is_merged, str(name.store_date), name.start, name.end) == (True, FIRST_DATE, 0, len(growing.log))
    assert content(growing) == before
    counting = CountingStore(FolderStorage(growing.lake.bodies_root))
    assert [read_body(counting, BodyRef(**ref)) for ref in refs] == read
    assert counting.lists == 1  # of the folder, for all packs of the merged one
    assert [read_body(store, BodyRef(**ref)) for ref in refs] == read  # by a reader that was at work before
    assert [pack_size(store, file.name) for file in small] == [file.size for file in small]
    assert write(growing) == PackMerges()


def test_a_merged_pack_is_merged_again_and_holds_each_pack_once(growing: GrowingLake) -> None:
    merge(growing)
    store, ref = folder_store(growing.lake.bodies_root), BodyRef(**rows_of(growing.lake.uri("messages"))[0]["body_ref"])
    body = read_body(store, ref)
    archive_runs(growing, 3)
    before = content(growing)
    assert merge(growing) == 1
    assert len(read_merged_index(store, files_of(growing)[0])) == 7
    assert content(growing) == before
    assert read_body(store, ref) == body  # although the file where it was found is gone


def test_a_merge_that_is_killed_anywhere_loses_no_body_and_leaves_no_file(growing: GrowingLake) -> None:
    before = content(growing)
    write(growing)
    write(growing)  # a second process, or the next run, has merged the same packs
    assert len(files_of(growing)) > 5
    assert content(growing) == before
    small = [file.name for file in files_of(growing) if not parse_pack_name(file.name).is_merged]
    folder_store(growing.lake.bodies_root).delete(small[:2])  # killed while it deleted
    assert content(growing) == before
    assert merge(growing) == 1
    assert content(growing) == before


class ErasingStore(PackStore):
    """A store that erases a message when a merged pack has all of its bytes, and is not there yet."""

    def __init__(self, growing: GrowingLake) -> None:
        super().__init__(FolderStorage(growing.lake.bodies_root))
        self.growing = growing

    @contextmanager
    def open_write(self, name: str) -> Iterator[PackOutput]:
        """See PackStore."""
        with super().open_write(name) as output:
            yield output
            erase(self.growing)


def erase(growing: GrowingLake) -> None:
    place = ErasureTarget(growing.lake, "1")
    run_erasure(place, plan_erasure(place, KeysToErase([KEY])), "a test", 7 * DAY, lambda _: None)


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("when", ["before", "while it is written", "before the small packs are deleted", "after"])
def test_an_erased_body_is_in_no_file_whenever_its_pack_is_merged(tmp_path: Path, when: str) -> None:
    growing = write_lake(tmp_path)
    packs = Path(growing.lake.bodies_root)
    assert len(traces(packs)) == 1
    before = content(growing)
    if when == "before":
        erase(growing)
    write(growing, ErasingStore(growing) if when == "while it is written" else None)
    if when == "before the small packs are deleted":
        assert len(traces(packs)) == 2
        erase(growing)
    assert finish(growing) == []
    if when == "after":
        assert len(traces(packs)) == 1
        erase(growing)
    assert traces(packs) == []
    assert len(files_of(growing)) == 1
    left = content(growing)
    assert len(left) == len(before) - 1
    assert left.items() <= before.items()


def test_a_merged_pack_stays_as_long_as_rows_name_one_of_its_packs(growing: GrowingLake) -> None:
    merge(growing)
    last = read_last_commit(growing.lake)
    assert last is not None
    store, later = folder_store(growing.lake.bodies_root), datetime.datetime.now(datetime.UTC) + 10 * DAY
    assert find_orphan_packs(store, growing.lake, files_of(growing), last.stores, later, 7 * DAY) == []
    (merged,) = files_of(growing)
    empty = GrowingLake(growing.folder / "other")
    empty.write(shop_messages(5, seed=77))
    empty.archive()
    orphans = find_orphan_packs(store, empty.lake, files_of(growing), last.stores, later, 7 * DAY)
    assert [file.name for file in orphans] == [merged.name]


def test_packs_that_no_row_names_and_large_ones_are_not_merged(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.write(shop_messages(60, seed=60))
    growing.archive()
    packs = files_of(growing)
    other = packs[0].name.replace(packs[0].name[-20:-4], "0123456789abcdef")
    Path(growing.lake.bodies_root, other).write_bytes(b"left by a killed run")
    monkeypatch.setattr(packs_module, "SMALL_BYTES", packs[-1].size)
    assert merge(growing) == 3
    assert {other, packs[-1].name} < {file.name for file in files_of(growing)}


def test_a_damaged_merged_pack_is_named_and_stays(growing: GrowingLake) -> None:
    merge(growing)
    (merged,) = files_of(growing)
    path = Path(growing.lake.bodies_root, merged.name)
    path.write_bytes(path.read_bytes()[:-1])
    ref = BodyRef(**rows_of(growing.lake.uri("messages"))[0]["body_ref"])
    with pytest.raises(PackError, match="expected an index at the end of a merged pack"):
        read_body(folder_store(growing.lake.bodies_root), ref)
    archive_runs(growing, 2)
    last = read_last_commit(growing.lake)
    assert last is not None
    found = find_merge_candidates(files_of(growing), last.stores)
    named = read_referenced_packs(growing.lake, {file.store_date for file in found})
    bins, planned = plan_pack_merges(folder_store(growing.lake.bodies_root), found, named, last.stores)
    assert len(planned.left) == 1
    assert merged.name not in {file.name for one in bins for file in one.files}


def test_an_unfinished_merged_pack_is_recognised(tmp_path: Path) -> None:
    folder = tmp_path / "store_date=2026-11-20" / "broker=a"
    folder.mkdir(parents=True)
    name = "00000000000000000000-00000000000000000001-0123456789abcdef-merged.zst"
    (folder / f".{name}.12-0123456789abcdef.tmp").touch()
    assert folder_store(tmp_path).delete_unfinished_packs(datetime.datetime.now(datetime.UTC) + DAY) == 1


@pytest.mark.parametrize("days", [3, 30])
def test_a_pack_without_a_date_is_referenced_by_rows_of_any_date(tmp_path: Path, days: int) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(60, days=days))
    growing.archive()
    packs = list(folder_store(growing.lake.bodies_root).list_packs())
    assert (None in {parse_pack_name(pack.name).store_date for pack in packs}) == (days > 16)
    last = read_last_commit(growing.lake)
    assert last is not None
    later = datetime.datetime.now(datetime.UTC) + 10 * DAY
    assert (
        find_orphan_packs(folder_store(growing.lake.bodies_root), growing.lake, packs, last.stores, later, 7 * DAY)
        == []
    )
