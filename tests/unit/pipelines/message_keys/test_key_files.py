"""Keys that a run's tasks write are the same as those that are read from its data files, and replace these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.erasures import ErasedMessages, ErasedOffsets
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive import command as archive_job
from commitlake.pipelines.archive import task
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.message_keys import key_files, table_update
from commitlake.pipelines.message_keys.key_files import KeyWriter, PreparedKeys
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.local_archives import write_messages

SORTED = [("key_hash", "ascending"), ("key", "ascending"), ("physical_offset", "ascending"), ("kind", "ascending")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake without tables, beside a store."""
    write_messages(tmp_path / "store", 2000)
    return Lake(str(tmp_path / "lake"))


def archive(lake: Lake, tmp_path: Path, erased: ErasedMessages | None = None) -> PreparedKeys:
    """Write and commit an archive run in this process, and return the keys that its tasks have written."""
    work = find_archive_work(str(tmp_path / "store"), "a", lake)
    open_messages_for_append(lake)
    tasks = ArchiveTasks(
        work.splits(1 << 17), lake, work.commit.run_id, "1", erased=erased or ErasedMessages(),
        keyed=True,
    )  # fmt: skip
    manifest = list(tasks.run_task(0, tasks.parts))
    messages = [row.data_file for row in manifest if row.table == "messages"]
    commit_run(lake, messages, work.commit, work.previous_progress)
    keys = [row.data_file for row in manifest if row.table == "message_keys"]
    return PreparedKeys(frozenset(file.path for file in messages), 0, keys)


def keys_of(lake: Lake) -> pa.Table:
    """Return the rows of `message_keys`, sorted."""
    return DeltaTable(lake.uri("message_keys")).to_pyarrow_table().sort_by(SORTED)


def names_of(lake: Lake) -> set[str]:
    """Return the names of the data files of `message_keys`."""
    return {Path(uri).name for uri in DeltaTable(lake.uri("message_keys")).file_uris()}


def keys_read_again(lake: Lake, tmp_path: Path) -> pa.Table:
    """Return the keys of all messages of a lake, as they are read from its data files."""
    other = Lake(str(tmp_path / "other"))
    archive(other, tmp_path)
    follow_keys(other)
    return keys_of(other)


def test_files_of_tasks_are_added_without_reading_messages(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = keys_read_again(lake, tmp_path)
    prepared = archive(lake, tmp_path)
    monkeypatch.setattr(table_update._KeysFilesWriter, "write_keys_of_part", None)  # reads data files
    followed = follow_keys(lake, prepared_keys=prepared)
    assert followed.rows == wanted.num_rows == 2000
    assert keys_of(lake).equals(wanted)
    assert names_of(lake) == {file.path for file in prepared.files}
    assert follow_keys(lake, prepared_keys=prepared).rows == 0
    assert keys_of(lake).equals(wanted)


def test_rows_of_earlier_runs_are_read(lake: Lake, tmp_path: Path) -> None:
    archive(lake, tmp_path)
    write_messages(tmp_path / "store", 500)
    prepared = archive(lake, tmp_path)
    follow_keys(lake, prepared_keys=prepared)
    assert keys_of(lake).equals(keys_read_again(lake, tmp_path))
    assert not names_of(lake) & {file.path for file in prepared.files}


def test_keys_that_were_written_before_an_erasure_are_not_added(lake: Lake, tmp_path: Path) -> None:
    prepared = archive(lake, tmp_path)
    before = PreparedKeys(prepared.messages, prepared.erasure + 1, prepared.files)
    follow_keys(lake, prepared_keys=before)
    assert keys_of(lake).equals(keys_read_again(lake, tmp_path))
    assert not names_of(lake) & {file.path for file in prepared.files}


def test_keys_of_erased_messages_are_left_out(lake: Lake, tmp_path: Path) -> None:
    all_keys = keys_read_again(lake, tmp_path)
    gone = sorted(set(all_keys.column("physical_offset").to_pylist()))[3:9]
    erased = ErasedMessages(1, ("e",), (1,), {"a": ErasedOffsets(np.array(gone), np.zeros(len(gone), np.int64))})
    prepared = archive(lake, tmp_path, erased)
    follow_keys(lake, prepared_keys=prepared)
    left = set(keys_of(lake).column("physical_offset").to_pylist())
    assert set(all_keys.column("physical_offset").to_pylist()) - left == set(gone)


@pytest.mark.parametrize("limit", ["MAX_ROWS", "_MAX_BYTES"])
def test_a_task_with_many_rows_writes_several_files(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    wanted = keys_read_again(lake, tmp_path)
    monkeypatch.setattr(key_files, limit, 100)
    monkeypatch.setattr("commitlake.pipelines.archive.row_buffer.PART_BYTES", 1 << 16)
    prepared = archive(lake, tmp_path)
    assert len(prepared.files) > 2
    follow_keys(lake, prepared_keys=prepared)
    assert keys_of(lake).equals(wanted)
    assert len(names_of(lake)) == len(prepared.files)


def test_rows_without_keys_give_no_file(lake: Lake) -> None:
    found = KeyWriter(lake, "part")
    rows = {"broker": ["a"], "physical_offset": [0], "topic": ["T"], "unique_key": [None], "keys": [None]}
    table = pa.table({**rows, "store_timestamp": pa.array([0], pa.timestamp("us", "UTC"))})
    schema = table.schema.set(3, pa.field("unique_key", pa.string())).set(4, pa.field("keys", pa.list_(pa.string())))
    encoded = table.cast(schema)
    for name in ("broker", "topic"):
        place = encoded.schema.names.index(name)
        encoded = encoded.set_column(place, name, encoded.column(name).dictionary_encode())
    found.add_messages(encoded)
    assert found.finish_files() == []
    assert not Path(lake.uri("message_keys")).exists()


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(("smallest_task", "are_of_tasks"), [(1, True), (1 << 40, False)])
def test_a_run_adds_the_files_of_its_tasks_if_these_are_large(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest_task: int, are_of_tasks: bool
) -> None:
    monkeypatch.setattr(task, "_MIN_KEYED_BYTES", smallest_task)
    monkeypatch.setattr(task, "choose_part_size", lambda *_, **__: 1)  # several tasks
    command = ["--store", str(tmp_path / "store"), "--broker", "a", "--lake", lake.root, "--local", "--quiet"]
    assert archive_job.main([*command, "--processes", "2"]) == 0
    written = {path.name for path in Path(lake.uri("message_keys")).glob("*.parquet")}
    run_id = DeltaTable(lake.uri("archive_runs")).to_pyarrow_table().column("run_id")[0].as_py()
    assert written == names_of(lake)
    assert {run_id in name for name in written} == {are_of_tasks}
    assert keys_of(lake).equals(keys_read_again(lake, tmp_path))


def test_a_run_without_keys_writes_none(lake: Lake, tmp_path: Path) -> None:
    command = ["--store", str(tmp_path / "store"), "--broker", "a", "--lake", lake.root, "--local", "--quiet"]
    assert archive_job.main([*command, "--no-keys"]) == 0
    assert not Path(lake.uri("message_keys")).exists()


@pytest.mark.parametrize("others", [[], [[]], [[], []], [["b"], None]])
def test_a_key_that_a_message_has_twice_gives_one_row(others: list[list[str] | None]) -> None:
    """An empty list of keys must not make up for the second key of another message."""
    keys = [["a", "a"], *others]
    rows = [{"broker": "b", "physical_offset": number, "topic": "t", "keys": each} for number, each in enumerate(keys)]
    messages = pa.Table.from_pylist(rows, arrow_schema(MESSAGES.select_columns(key_files.COLUMNS)))
    assert key_files.extract_keys(messages).column("key").to_pylist().count("a") == 1
