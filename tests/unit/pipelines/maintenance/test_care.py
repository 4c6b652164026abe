"""Old files are deleted and needed ones kept: expiry, VACUUM, logs, packs."""

from __future__ import annotations

import datetime
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.delta_log.versions import VersionsError, added_versions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.pipelines.archive.profile_files import write_staged_profile
from commitlake.pipelines.maintenance.compaction import compact_table, plan_compaction
from commitlake.pipelines.maintenance.expiry import (
    expire_files,
    find_expired_files,
    find_expired_packs,
    measure_files,
    read_expiries,
    record_expiry,
)
from commitlake.pipelines.maintenance.log_cleanup import (
    delete_old_log_entries,
    find_vacuumable_files,
    vacuum,
    write_checkpoint,
)
from commitlake.pipelines.maintenance.pack_merging import find_orphan_packs
from tests.support.lakes import GrowingLake, data_files, rows_of, shop_messages
from tests.support.packs import TOKEN, folder_store
from tests.support.profiles import many_windows

DAY = datetime.timedelta(days=1)
WEEK = 7 * DAY
FIRST_DAY = datetime.date(2023, 11, 15)


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs, each of three days."""
    growing = GrowingLake(tmp_path)
    for seed in range(2):
        growing.write(shop_messages(90, days=3, seed=seed))
        growing.archive()
    return growing


def make_older(path: str | Path, age: datetime.timedelta) -> None:
    """Set a file's time back."""
    moment = time.time() - age.total_seconds()
    os.utime(path, (moment, moment))


def now() -> datetime.datetime:
    """Return the current time."""
    return datetime.datetime.now(datetime.UTC)


# --- expiry ---


def test_only_rows_of_old_dates_expire(growing: GrowingLake) -> None:
    uri = growing.lake.uri("messages")
    files = find_expired_files(growing.lake, "messages", FIRST_DAY + 2 * DAY)
    assert (measure_files(files).count, measure_files(files).rows) == (4, 120)
    expire_files(growing.lake, "messages", files, FIRST_DAY + 2 * DAY)
    assert {row["store_date"] for row in rows_of(uri)} == {FIRST_DAY + 2 * DAY}
    assert len(rows_of(uri)) == 60
    assert find_expired_files(growing.lake, "messages", FIRST_DAY + 2 * DAY) == []


def test_the_archive_continues_after_an_expiry_and_followers_notice_it(growing: GrowingLake) -> None:
    uri = growing.lake.uri("messages")
    last, version = read_last_commit(growing.lake), DeltaTable(uri).version()
    expire_files(
        growing.lake, "messages", find_expired_files(growing.lake, "messages", FIRST_DAY + DAY), FIRST_DAY + DAY
    )
    assert read_last_commit(growing.lake) == last
    (change,) = added_versions(uri, version)
    with pytest.raises(VersionsError):
        change.check_append_only()
    growing.write(shop_messages(10, seed=7))
    growing.archive()
    assert len(rows_of(uri)) == 180 - 60 + 10


def test_an_expiry_without_old_rows_makes_no_version(growing: GrowingLake) -> None:
    version = DeltaTable(growing.lake.uri("messages")).version()
    expire_files(growing.lake, "messages", find_expired_files(growing.lake, "messages", FIRST_DAY), FIRST_DAY)
    assert DeltaTable(growing.lake.uri("messages")).version() == version


def test_an_announced_expiry_is_never_withdrawn(growing: GrowingLake) -> None:
    uri = growing.lake.uri("messages")
    assert read_expiries(DeltaTable(uri)) == {}
    record_expiry(growing.lake, "bodies", FIRST_DAY + DAY)
    record_expiry(growing.lake, "messages", FIRST_DAY)
    version = DeltaTable(uri).version()
    record_expiry(growing.lake, "bodies", FIRST_DAY)  # they are kept for longer from now on: what is gone stays gone
    assert DeltaTable(uri).version() == version
    growing.write(shop_messages(10, seed=7))
    assert growing.archive().sequence == 3
    assert read_expiries(DeltaTable(uri)) == {"bodies": FIRST_DAY + DAY, "messages": FIRST_DAY}


def test_a_run_planned_before_an_announcement_commits_after_it(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DeltaTable.create_write_transaction

    def announce_first(table: DeltaTable, *arguments: Any, **named: Any) -> None:
        record_expiry(growing.lake, "bodies", FIRST_DAY)
        whole(table, *arguments, **named)

    growing.write(shop_messages(10, seed=7))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", announce_first)
    assert growing.archive().sequence == 3
    assert len(rows_of(growing.lake.uri("messages"))) == 190


def test_an_announcement_overtaken_by_another_commit_is_repeated(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, stale = growing.lake.uri("messages"), DeltaTable(growing.lake.uri("messages"))
    record_expiry(growing.lake, "messages", FIRST_DAY)
    tables = iter([stale])
    monkeypatch.setattr(Lake, "table", lambda lake, name: next(tables, None) or DeltaTable(lake.uri(name)))
    record_expiry(growing.lake, "bodies", FIRST_DAY)
    assert read_expiries(DeltaTable(uri)) == {"bodies": FIRST_DAY, "messages": FIRST_DAY}


def test_a_table_without_dates_expires_by_the_time_of_its_files(growing: GrowingLake) -> None:
    today = now().date()
    assert find_expired_files(growing.lake, "archive_runs", today) == []
    assert measure_files(find_expired_files(growing.lake, "archive_runs", today + 2 * DAY)).rows == 2
    before = [file.modified_ms for file in find_expired_files(growing.lake, "archive_runs", today + 2 * DAY)]
    compact_table(growing.lake, "archive_runs", plan_compaction(growing.lake, "archive_runs", 1 << 20), ())
    (merged,) = find_expired_files(growing.lake, "archive_runs", today + 2 * DAY)
    assert merged.modified_ms == max(before)


# --- VACUUM and logs ---


def test_vacuum_deletes_profiles_staged_by_a_killed_run(growing: GrowingLake) -> None:
    profile = many_windows(range(3))
    paths = []
    for run in ("killed", "running"):
        told = write_staged_profile(profile, growing.lake, run, "part-00000", 0)
        paths.append(Path(growing.lake.uri("profiles")) / told.path)
    unfinished = paths[0].with_name(".part-00001.arrow.99-0123456789abcdef.tmp")
    unfinished.write_bytes(b"x")
    write_deltalake(growing.lake.uri("profiles"), pa.table({"run_id": ["r"]}))
    for path in (paths[0], unfinished):
        make_older(path, WEEK + DAY)
    found = find_vacuumable_files(growing.lake, "profiles", WEEK)
    assert (found.count, found.bytes > 10_000) == (2, True)
    vacuum(growing.lake, "profiles", WEEK)
    assert [path.exists() for path in (*paths, unfinished)] == [False, True, False]
    assert DeltaTable(growing.lake.uri("profiles")).to_pyarrow_table().to_pylist() == [{"run_id": "r"}]


def test_vacuum_deletes_only_old_files_that_no_version_needs(growing: GrowingLake) -> None:
    uri = growing.lake.uri("messages")
    folder = Path(uri) / f"store_date={FIRST_DAY}"
    kept = shutil.copy(next(folder.glob("*.parquet")), folder / "young.parquet")
    orphan = shutil.copy(kept, folder / "orphan.parquet")
    temporary = folder / ".part.parquet.12-0123456789abcdef.tmp"
    temporary.write_bytes(b"half")
    for path in (orphan, temporary):
        make_older(path, 8 * DAY)
    before = rows_of(uri)
    found = find_vacuumable_files(growing.lake, "messages", WEEK)
    assert (found.count, found.bytes) == (2, Path(orphan).stat().st_size + 4)
    vacuum(growing.lake, "messages", WEEK)
    assert not Path(orphan).exists()
    assert not temporary.exists()
    assert Path(kept).exists()
    assert rows_of(uri) == before
    assert find_vacuumable_files(growing.lake, "messages", WEEK).count == 0


def test_a_retention_too_short_for_a_running_archive_is_refused(growing: GrowingLake) -> None:
    with pytest.raises(ValueError, match="at least 1 day"):
        vacuum(growing.lake, "messages", datetime.timedelta(hours=23))


def test_a_checkpoint_is_made_every_ten_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    made = []
    for number in range(23):
        write_deltalake(uri, pa.table({"n": [number]}), mode="append")
        made.append(write_checkpoint(Lake(str(tmp_path)), "table"))
    assert [number for number, one in enumerate(made) if one] == [10, 20]


def age_log(uri: str, age: datetime.timedelta) -> None:
    """Set every entry of a log back in time, inside and out."""
    for path in (Path(uri) / "_delta_log").iterdir():
        make_older(path, age)


def test_cleaning_the_log_keeps_the_archives_progress(growing: GrowingLake) -> None:
    uri = growing.lake.uri("messages")
    DeltaTable(uri).create_checkpoint()
    last = read_last_commit(growing.lake)
    age_log(uri, 40 * DAY)
    later = now() + 40 * DAY
    assert "was not cleaned, because the archive's progress is only in a commit of" in delete_old_log_entries(
        growing.lake, "messages", later
    )
    assert read_last_commit(growing.lake) == last
    growing.write(shop_messages(10, seed=7))
    growing.archive()
    DeltaTable(uri).create_checkpoint()
    assert delete_old_log_entries(growing.lake, "messages", now()) == ""
    names = {path.name for path in (Path(uri) / "_delta_log").glob("*.json")}
    assert f"{0:020}.json" not in names
    newest = read_last_commit(growing.lake)
    assert newest is not None
    assert newest.sequence == 3
    assert len(rows_of(uri)) == 190


@pytest.mark.parametrize(("interval", "cleaned"), [("interval 2 weeks", True), ("interval 5 days", False)])
def test_the_retention_of_the_table_is_used(growing: GrowingLake, interval: str, cleaned: bool) -> None:
    uri = growing.lake.uri("messages")
    DeltaTable(uri).alter.set_table_properties({"delta.logRetentionDuration": interval})
    assert (delete_old_log_entries(growing.lake, "messages", now() + 10 * DAY) == "") == cleaned


# --- packs ---


def packs_of(growing: GrowingLake) -> PackStore:
    """Return the lake's packs."""
    return folder_store(growing.lake.bodies_root)


def write_pack(growing: GrowingLake, start: int, end: int, age: datetime.timedelta, broker: str = "broker-a") -> str:
    """Write a pack that no row names."""
    name = pack_name(FIRST_DAY, broker, start, end, TOKEN)
    with packs_of(growing).open_write(name) as output:
        output.write(memoryview(b"bodies"))
    make_older(Path(growing.lake.bodies_root) / name, age)
    return name


def orphans_of(growing: GrowingLake) -> list[str]:
    """Return the names of the packs that no row names."""
    last = read_last_commit(growing.lake)
    assert last is not None
    packs = list(packs_of(growing).list_packs())
    return [
        pack.name
        for pack in find_orphan_packs(
            folder_store(growing.lake.bodies_root), growing.lake, packs, last.stores, now(), WEEK
        )
    ]


def test_a_pack_that_no_row_references_is_found(growing: GrowingLake) -> None:
    for pack in packs_of(growing).list_packs():
        make_older(Path(growing.lake.bodies_root) / pack.name, 10 * DAY)
    assert orphans_of(growing) == []
    orphan = write_pack(growing, 0, 77, 10 * DAY)
    assert orphans_of(growing) == [orphan]


def test_a_pack_that_a_run_may_still_reference_is_kept(growing: GrowingLake) -> None:
    end = len(growing.log)
    write_pack(growing, 0, 77, 6 * DAY)  # too young
    write_pack(growing, end, end + 77, 10 * DAY)  # ahead of the archive
    write_pack(growing, 0, 77, 10 * DAY, broker="broker-b")  # of a store that the lake does not know
    write_pack(growing, 0, 78, 60 * DAY)  # seen by earlier looks
    assert orphans_of(growing) == []


def test_packs_expire_by_their_date(growing: GrowingLake) -> None:
    packs = list(packs_of(growing).list_packs())
    assert len(packs) == 6
    old = find_expired_packs(packs, FIRST_DAY + DAY, {"broker-a"})
    assert {pack.store_date for pack in old} == {FIRST_DAY}
    assert measure_files(old).count == 2
    assert find_expired_packs(packs, FIRST_DAY + DAY, {"broker-b"}) == []
    assert len(data_files(growing.lake.uri("messages"))) == 6
