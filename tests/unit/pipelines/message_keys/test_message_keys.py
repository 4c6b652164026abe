"""Every message is found by each of its keys, however far `message_keys` has followed."""

from __future__ import annotations

import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from numba.core.dispatcher import Dispatcher

from commitlake.connectors.lake.backoff import MAX_TRIES
from commitlake.connectors.lake.committer import commit_run, commit_with_transaction, open_messages_for_append
from commitlake.connectors.lake.delta_log.versions import VersionGoneError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.message_keys.check import open_keys_of_messages, sum_key_hashes
from commitlake.pipelines.message_keys.key_files import hash_texts, key_hashes
from commitlake.pipelines.message_keys.lookup import find_message_places
from commitlake.pipelines.message_keys.progress import APPLICATION_ID, followed_version
from commitlake.pipelines.message_keys.table_update import catch_up_keys, follow_keys
from commitlake.pipelines.query.engines import TableQuery
from commitlake.pipelines.query.key_conditions import business_keys_condition, unique_key_condition
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.messages import MESSAGE_KEYS
from tests.support.logs import new_message, open_segment, records, write_store
from tests.support.sending_runner import SendingRunner

SIZE = 1 << 16


def archive(store: Path, lake: Lake) -> int:
    """Write and commit an archive run in this process."""
    work = find_archive_work(str(store), "a", lake)
    open_messages_for_append(lake)
    tasks = ArchiveTasks(work.splits(SIZE), lake, work.commit.run_id, "1")
    manifest = list(tasks.run_task(0, tasks.parts))
    commit_run(
        lake,
        [row.data_file for row in manifest if row.table == "messages"],
        work.commit,
        work.previous_progress,
    )
    return DeltaTable(lake.uri("messages")).version()


def keyed(number: int, keys: str | None, unique_key: str | None) -> NewMessage:
    """Return a message with these keys."""
    given = [("KEYS", keys), ("UNIQ_KEY", unique_key)]
    return new_message(number, properties=tuple((name, value) for name, value in given if value is not None))


SENT = [
    keyed(0, "order-1 order-2", "U0"),
    keyed(1, "order-2 order-2", "U1"),
    keyed(2, None, "U2"),
    keyed(3, "it's", None),
    keyed(4, None, None),
    keyed(5, "订单-1", "U5"),
    keyed(6, "U5", "U6"),
]
STARTS = [sum(len(record) for record in records(SENT)[:number]) for number in range(len(SENT))]


def offsets(lake: Lake, *keys: str, kind: str = "key") -> list[int]:
    """Return the numbers of the messages that are found."""
    found = find_message_places(lake, keys, kind).column("physical_offset").to_pylist()
    return sorted({STARTS.index(offset) for offset in found})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of the first three messages, and a store of all."""
    lake = Lake(str(tmp_path / "lake"))
    archive(write_store(tmp_path / "store", [(0, open_segment(SENT[:3], SIZE))]), lake)
    write_store(tmp_path / "store", [(0, open_segment(SENT, SIZE))])
    return lake


@pytest.mark.parametrize("followed", ["nothing", "a part", "all"])
def test_a_key_finds_its_messages(lake: Lake, tmp_path: Path, followed: str) -> None:
    if followed == "a part":
        follow_keys(lake)
    archive(tmp_path / "store", lake)
    if followed == "all":
        follow_keys(lake)
    assert offsets(lake, "order-1") == [0]
    assert offsets(lake, "order-2") == [0, 1]
    assert offsets(lake, "order-1", "it's") == [0, 3]
    assert offsets(lake, "订单-1") == [5]
    assert offsets(lake, "U5") == [6]
    assert offsets(lake, "U5", kind="unique_key") == [5]
    assert offsets(lake, "nothing") == []


def test_files_have_the_declared_columns_sorted_by_hash(lake: Lake) -> None:
    followed = follow_keys(lake)
    assert followed.rows == 6
    table = DeltaTable(lake.uri("message_keys"))
    (path,) = table.file_uris()
    rows = pq.ParquetFile(path).read()
    assert rows.schema.names == MESSAGE_KEYS.names
    hashes = rows.column("key_hash").to_pylist()
    assert hashes == sorted(hashes)
    assert hashes == [zlib.crc32(key.encode()) for key in rows.column("key").to_pylist()]
    assert {field.name for field in table.schema().fields} == set(MESSAGE_KEYS.names)


def test_followed_versions_are_not_followed_again(lake: Lake, tmp_path: Path) -> None:
    assert follow_keys(lake).rows == 6
    assert follow_keys(lake).rows == 0
    newest = archive(tmp_path / "store", lake)
    followed = follow_keys(lake)
    assert (followed.version, followed.rows) == (newest, 5)
    assert followed_version(lake) == newest
    assert DeltaTable(lake.uri("message_keys")).to_pyarrow_table().num_rows == 11


def test_only_one_of_two_followers_adds_the_keys(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*arguments: object, **options: bool) -> bool:
        monkeypatch.undo()
        assert follow_keys(lake).rows == 6
        return commit_with_transaction(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("commitlake.pipelines.message_keys.table_update.commit_with_transaction", overtaken)
    assert follow_keys(lake).rows == 0
    assert DeltaTable(lake.uri("message_keys")).to_pyarrow_table().num_rows == 6
    assert DeltaTable(lake.uri("message_keys")).transaction_version(APPLICATION_ID) == followed_version(lake)


def test_a_follower_that_is_overtaken_catches_up(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*arguments: object, **options: bool) -> bool:
        monkeypatch.undo()
        follow_keys(lake)
        write_store(tmp_path / "store", [(0, open_segment(SENT[:7], SIZE))])
        archive(tmp_path / "store", lake)
        return commit_with_transaction(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("commitlake.pipelines.message_keys.table_update.commit_with_transaction", overtaken)
    wanted = DeltaTable(lake.uri("messages")).version()
    followed = catch_up_keys(lake, wait=lambda _: None)
    assert followed.version >= wanted
    assert not followed.is_unfinished


def test_a_follower_that_is_always_overtaken_reports_that_it_is_behind(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "commitlake.pipelines.message_keys.table_update.commit_with_transaction", lambda *_, **__: False
    )
    waits: list[float] = []
    assert catch_up_keys(lake, wait=waits.append).is_unfinished
    assert len(waits) == MAX_TRIES


@pytest.fixture
def left_behind(lake: Lake, tmp_path: Path) -> Lake:
    """A lake whose keys followed three messages; the files of the others were merged, and vacuumed."""
    follow_keys(lake)
    for count in (5, 7):
        write_store(tmp_path / "store", [(0, open_segment(SENT[:count], SIZE))])
        archive(tmp_path / "store", lake)
    table = DeltaTable(lake.uri("messages"))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    return lake


def test_a_follower_without_the_needed_files_rebuilds_the_table(left_behind: Lake, tmp_path: Path) -> None:
    followed = follow_keys(left_behind)
    assert followed.version == DeltaTable(left_behind.uri("messages")).version() == followed_version(left_behind)
    assert DeltaTable(left_behind.uri("message_keys")).to_pyarrow_table().num_rows == 11
    assert offsets(left_behind, "order-1", "it's", "订单-1") == [0, 3, 5]
    assert follow_keys(left_behind).rows == 0


def test_without_the_needed_files_look_ups_fail_and_queries_do_without_keys(left_behind: Lake) -> None:
    with pytest.raises(VersionGoneError, match="without --no-keys"):
        find_message_places(left_behind, ["it's"])
    assert business_keys_condition(left_behind, ["it's"]) is None
    assert unique_key_condition(left_behind, "U5") is None


def test_a_follower_rebuilds_the_table_after_the_log_was_cleaned(lake: Lake, tmp_path: Path) -> None:
    follow_keys(lake)
    archive(tmp_path / "store", lake)
    table = DeltaTable(lake.uri("messages"))
    table.create_checkpoint()
    for commit in (Path(lake.uri("messages")) / "_delta_log").glob("*.json"):
        commit.unlink()
    assert business_keys_condition(lake, ["it's"]) is None
    assert follow_keys(lake).rows == 11
    assert offsets(lake, "it's") == [3]
    assert DeltaTable(lake.uri("message_keys")).to_pyarrow_table().num_rows == 11


def test_a_task_receives_its_own_files_only(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path / "store", lake)
    monkeypatch.setattr("commitlake.pipelines.message_keys.table_update._DRIVER_ROWS", 1)
    runner = SendingRunner(2)
    follow_keys(lake, runner)
    sums = sum_key_hashes(open_keys_of_messages(lake), runner)
    assert sums[0].sum() == len(DeltaTable(lake.uri("message_keys")).to_pyarrow_table())
    names = [Path(uri).name.encode() for uri in DeltaTable(lake.uri("messages")).file_uris()]
    assert [sum(name in sent for name in names) for sent in runner.sent] == [1, 1, 1, 1]


def test_hashes_equal_those_of_zlib() -> None:
    texts = ["", "a", "订单-1", "x" * 5000, *map(str, range(300))]
    array = pa.array(["skipped", *texts])
    assert key_hashes(array[1:]).tolist() == [zlib.crc32(text.encode()) for text in texts]
    assert key_hashes(pa.array([], pa.string())).tolist() == []
    assert len(cast("Dispatcher", hash_texts).signatures) == 1  # or users wait for the compiler


@pytest.mark.parametrize("what", ["an entry of the log", "a data file", "a page"])
def test_a_query_does_without_a_damaged_table_with_a_warning(
    lake: Lake, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    follow_keys(lake)
    assert business_keys_condition(lake, ["order-2"]) is not None
    assert business_keys_condition(lake, ["no such key"]) == "false"
    (path,) = Path(lake.uri("message_keys")).glob("*.parquet")
    data = path.read_bytes()
    if what == "an entry of the log":
        (Path(lake.uri("message_keys")) / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    elif what == "a data file":
        path.unlink()
    else:
        group = pq.ParquetFile(path).metadata.row_group(0)
        place = group.column(0).data_page_offset + group.column(0).total_compressed_size - 3
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert business_keys_condition(lake, ["no such key"]) is None
    assert unique_key_condition(lake, "U9") is None
    assert capsys.readouterr().err.count("message_keys is damaged, so all of messages is searched") == 2


def test_a_look_up_reads_other_columns_only_if_a_hash_matches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_keys(lake)
    read: list[list[str]] = []
    whole = pq.ParquetFile.read_row_group

    def spy(file: pq.ParquetFile, group: int, columns: list[str], **named: bool) -> pa.Table:
        read.append(columns)
        return whole(file, group, columns, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", spy)
    between = next(key for key in map(str, range(10_000)) if zlib.crc32(key.encode()) in _hashes_without_rows(lake))
    assert offsets(lake, between) == []
    assert read == [["key_hash"]]
    read.clear()
    assert offsets(lake, "order-1") == [0]
    assert [columns[0] for columns in read] == ["key_hash", "broker"]


def _hashes_without_rows(lake: Lake) -> range:
    """Return the hashes between two neighbouring ones of the table, which no row has."""
    hashes = sorted(DeltaTable(lake.uri("message_keys")).to_pyarrow_table().column("key_hash").to_pylist())
    _, least = max((high - low, low) for low, high in pairwise(hashes))
    return range(least + 1, min(high for high in hashes if high > least))


def test_a_look_up_of_a_key_does_not_import_pandas(lake: Lake) -> None:
    follow_keys(lake)
    code = (
        "import sys\n"
        "from commitlake.connectors.lake.lake import Lake\n"
        "from commitlake.pipelines.query.key_conditions import business_keys_condition, unique_key_condition\n"
        f"lake = Lake({lake.root!r})\n"
        "assert 'physical_offset IN' in business_keys_condition(lake, ['order-2'])\n"
        "assert 'physical_offset IN' in unique_key_condition(lake, 'U1')\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_unique_key_is_looked_up_only_if_no_message_has_the_offset_id() -> None:
    asked: list[str] = []

    def places(unique_key: str) -> str:
        assert unique_key == message_id
        asked.append("unique key")
        return "physical_offset IN (7)"

    message_id = "0A00000100002A9F00000000000003E8"
    question = TableQuery("messages", Selection(ids=[message_id]), ["topic"], ["topic"], 0, unique_key_places=places)
    statements = question.statements("messages", Engine.DELTALAKE)
    assert "physical_offset = 1000" in next(statements)
    assert asked == []
    assert f"(unique_key = '{message_id}' AND physical_offset IN (7))" in next(statements)
    assert asked == ["unique key"]
