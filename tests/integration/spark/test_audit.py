"""The audit: it finds no difference in a sound lake, and any single missing message."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.audit.compared_sides import AuditSides
from commitlake.pipelines.audit.window_profiles import Profile
from commitlake.pipelines.masking.archive_masks import parse_archive_masks
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.logs import messages

SIZE = 1 << 15
MESSAGES = 210
OPTIONS = StoreOptions(segment_size_bytes=SIZE, index_slots=100, index_entries=400)


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a lake of three runs."""
    root = tmp_path_factory.mktemp("audited")
    store = root / "broker-a" / "store"
    config = Config(str(store), Lake(str(root / "lake")), max_partition_bytes=SIZE // 4)
    sent = messages(MESSAGES)
    for part in (sent[:50], sent[50:130], sent[130:]):
        with MessageStore.open(store, OPTIONS) as broker:
            for message in part:
                broker.put(message)
        assert run_archive(SparkRunner(spark), config).messages == len(part)
    return root


@pytest.fixture
def folder(archived: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(archived, tmp_path / "copy"))


def run_audit(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """Run an audit; return the exit code, and the verdict on each pair."""
    capsys.readouterr()
    store = str(folder / "{broker}" / "store")
    code = audit.main(["--lake", str(folder / "lake"), "--store", store, "--quiet", "--output", "json", *more])
    verdicts = json.loads(capsys.readouterr().out)["rows"]
    return code, {verdict.get("table") or f"{verdict['expected']}-{verdict['found']}": verdict for verdict in verdicts}


@pytest.mark.long("erased lakes are audited without Spark each time")
def test_a_lake_with_erased_messages_is_sound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--lake", str(folder / "lake"), "--key", "order-60", "--reason", "a test", "--yes"]
    assert erase.main(arguments) == 0
    code, verdicts = run_audit(folder, capsys)
    assert code == 0, verdicts
    assert "1 of the messages are erased, by 1 erasure" in verdicts["runs-messages"]["notes"][0]
    assert verdicts["messages-packs"]["messages"] == MESSAGES - 1


@pytest.mark.long("masks without Spark are compared each time")
def test_a_masked_lake_is_compared_with_its_store_under_the_same_masks(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "a key")
    masks = parse_archive_masks(["keys=hash", "body=truncate:2", "tags=null"], {"COMMITLAKE_MASK_KEY": "a key"})
    shutil.rmtree(folder / "lake")
    config = Config(str(folder / "broker-a" / "store"), Lake(str(folder / "lake")), broker="broker-a", masks=masks)
    assert run_archive(SparkRunner(spark), config).messages == MESSAGES
    code, verdicts = run_audit(folder, capsys)
    assert code == 0, verdicts
    assert verdicts["store-messages"]["messages"] == MESSAGES


@pytest.mark.long("a sound lake is audited without Spark each time, and one on Spark")
def test_a_sound_lake_has_no_differences(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts = run_audit(folder, capsys)
    assert code == 0
    assert list(verdicts) == ["runs-messages", "messages-packs", "store-messages"]
    assert {verdict["messages"] for verdict in verdicts.values()} == {MESSAGES}
    assert {verdict["differing"] for verdict in verdicts.values()} == {0}


@pytest.mark.long("an audit on Spark equals one here each time, of a lake that lost a message and has one twice")
def test_a_message_missing_in_the_table_fails_the_audit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = DeltaTable(str(folder / "lake" / "messages"))
    row = table.to_pyarrow_table(columns=["physical_offset", "topic", "queue_id"]).to_pylist()[7]
    table.delete(f"physical_offset = {row['physical_offset']}")
    code, verdicts = run_audit(folder, capsys)
    assert code == 3
    assert [verdicts[name].get("differing") for name in verdicts] == [1, 0, 1, None]
    assert all(note.startswith("unexpected: ") for note in verdicts["message_keys"]["notes"])
    (difference,) = verdicts["store-messages"]["differences"]
    assert (difference["topic"], difference["queue_id"]) == (row["topic"], row["queue_id"])
    assert difference["expected_messages"] == difference["found_messages"] + 1
    assert "checksum" in difference["different_columns"]


@pytest.mark.long("an audit on Spark equals one here each time, of a lake with each column changed")
@pytest.mark.parametrize("column", ["tags", "born_host"])
def test_a_changed_value_fails_the_audit(folder: Path, capsys: pytest.CaptureFixture[str], column: str) -> None:
    table = DeltaTable(str(folder / "lake" / "messages"))
    offset = table.to_pyarrow_table(columns=["physical_offset"]).column(0)[7].as_py()
    table.update({column: "'other'"}, predicate=f"physical_offset = {offset}")
    code, verdicts = run_audit(folder, capsys, "--no-bodies")
    assert code == 3
    for sides in ("runs-messages", "store-messages"):
        (difference,) = verdicts[sides]["differences"]
        assert difference["different_columns"] == ["row_checksum"]


@pytest.mark.long("an audit on Spark equals one here each time, of a lake that lost keys")
def test_lost_keys_and_runs_fail_the_audit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = DeltaTable(str(folder / "lake" / "message_keys"))
    key = keys.to_pyarrow_table(columns=["key"]).column(0)[7].as_py()
    keys.delete(f"key = '{key}'")
    DeltaTable(str(folder / "lake" / "archive_runs")).delete("sequence = 2")
    code, verdicts = run_audit(folder, capsys, "--no-bodies")
    assert code == 3
    assert verdicts["runs-messages"]["differing"] == verdicts["store-messages"]["differing"] == 0
    assert verdicts["archive_runs"]["notes"] == ["run 2: expected a row, found 0"]
    assert verdicts["message_keys"]["count"]
    assert all(note.startswith(f"missing: '{key}' of broker-a") for note in verdicts["message_keys"]["notes"])


@pytest.mark.long("an audit on Spark equals one here each time, of a lake with damaged and lost packs")
@pytest.mark.parametrize("damage", ["flipped", "gone", "cut"])
def test_an_unreadable_body_fails_the_audit(folder: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    pack = sorted((folder / "lake" / "bodies").rglob("*.zst"))[1]
    data = bytearray(pack.read_bytes())
    if damage == "gone":
        pack.unlink()
    elif damage == "flipped":
        data[len(data) // 2] ^= 0x10
        pack.write_bytes(data)
    else:
        pack.write_bytes(data[:-10])
    code, verdicts = run_audit(folder, capsys)
    assert code == 3
    assert verdicts["runs-messages"]["differing"] == verdicts["store-messages"]["differing"] == 0
    assert verdicts["messages-packs"]["differing"]
    assert any(pack.name in note for note in verdicts["messages-packs"]["notes"])
    assert audit.main(["--lake", str(folder / "lake"), "--quiet", "--no-bodies"]) == 0


@pytest.mark.long("a segment that is deleted beside an audit is left out each time")
def test_messages_deleted_from_the_store_are_not_a_difference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broker-a" / "store" / "commitlog" / f"{0:020d}").unlink()
    code, verdicts = run_audit(folder, capsys)
    assert code == 0
    assert 0 < verdicts["store-messages"]["messages"] < MESSAGES


@pytest.mark.long("what a store has lost is left out by code without Spark")
def test_a_segment_deleted_during_the_audit_is_not_a_difference(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = folder / "broker-a" / "store" / "commitlog" / f"{0:020d}"
    whole = AuditSides.profile_stores

    def deleted(sides: AuditSides, *arguments: Any) -> Profile:
        oldest.unlink(missing_ok=True)  # after the plan, before the read
        return whole(sides, *arguments)

    monkeypatch.setattr(AuditSides, "profile_stores", deleted)
    code, verdicts = run_audit(folder, capsys)
    assert code == 0
    assert 0 < verdicts["store-messages"]["messages"] < MESSAGES


@pytest.mark.long("an audit on Spark equals one here each time, and is printed by the same code")
def test_a_difference_is_printed_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(str(folder / "lake" / "messages")).delete("topic = 'topic-1' and queue_id = 1")
    assert audit.main(["--lake", str(folder / "lake"), "--quiet", "--no-bodies", "--local"]) == 3
    out = capsys.readouterr().out
    assert "Missing: the runs' counts and the table messages" in out
    assert "broker-a, topic topic-1, queue 1, ten minutes from" in out


@pytest.mark.long("two audits; each of them is made alone in other tests")
def test_the_next_audit_of_a_session_reads_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_audit(folder, capsys)[0] == 0
    next((folder / "lake" / "bodies").rglob("*.zst")).unlink()
    assert run_audit(folder, capsys)[0] == 3


@pytest.mark.long("later runs are left out in a unit test each time")
def test_an_archive_run_during_the_audit_is_not_a_difference(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, whole = folder / "broker-a" / "store", AuditSides.read_counted_part

    def archive_more(sides: AuditSides) -> object:
        with MessageStore.open(store, OPTIONS) as broker:
            for message in messages(20, seed=3):
                broker.put(message)
        assert run_archive(SparkRunner(spark), Config(str(store), Lake(str(folder / "lake")))).messages == 20
        return whole(sides)

    monkeypatch.setattr(AuditSides, "read_counted_part", archive_more)
    code, verdicts = run_audit(folder, capsys)
    assert code == 0, verdicts
    assert {verdict["messages"] for verdict in verdicts.values()} == {MESSAGES}


@pytest.mark.long("an option of an audit that is made each time")
def test_a_span_within_a_window_covers_the_whole_window(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = DeltaTable(str(folder / "lake" / "messages"))
    stored = max(table.to_pyarrow_table(columns=["store_timestamp"]).column(0).to_pylist())
    code, verdicts = run_audit(folder, capsys, "--from", stored.isoformat(), "--no-bodies")
    assert code == 0
    assert {verdict["messages"] > 0 for verdict in verdicts.values()} == {True}
    assert "compared in whole windows of ten minutes: from" in verdicts["runs-messages"]["notes"][0]


@pytest.mark.long("three archives and four audits; test_audit_tables.py has each rule on its own")
def test_expired_and_never_counted_messages_are_not_a_difference(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    lake, today = growing.lake.root, datetime.datetime.now(datetime.UTC).date()
    for seed, counted in enumerate([False, True, False]):
        growing.write(shop_messages(40, days=4, seed=seed))
        run_archive(SparkRunner(spark), Config(str(growing.store), growing.lake, quality=counted))
        if seed == 0:
            code, verdicts = run_audit(tmp_path, capsys, "--store", str(growing.store))
            assert (code, verdicts["runs-messages"]["compared"], verdicts["messages-packs"]["messages"]) == (
                0,
                False,
                40,
            )
            assert "no run has a profile" in verdicts["runs-messages"]["notes"][0]
    kept = {date: f"{(today - datetime.date.fromisoformat(date)).days}d" for date in ("2023-11-16", "2023-11-17")}
    assert maintain.main(["--lake", lake, "--quiet", "--keep", f"bodies={kept['2023-11-17']}"]) == 0
    assert maintain.main(["--lake", lake, "--quiet", "--keep", f"messages={kept['2023-11-16']}"]) == 0
    code, verdicts = run_audit(tmp_path, capsys, "--store", str(growing.store))
    assert code == 0, verdicts
    assert [verdict["messages"] for verdict in verdicts.values()] == [30, 60, 90]
    assert verdicts["runs-messages"]["notes"] == [
        "messages stored before 2023-11-16 have expired, and are not compared",
        "60 messages are left out: 2 runs have no profile of their messages (--no-quality, or expired)",
    ]
    lost = min((tmp_path / "lake" / "bodies").rglob("*.zst"))
    assert "store_date=2023-11-17" in str(lost)
    lost.unlink()
    kept_since = f"{(today - datetime.date(2023, 11, 18)).days}d"  # as a lifecycle rule would have it
    assert run_audit(tmp_path, capsys, "--store", str(growing.store), "--bodies-kept", kept_since)[0] == 0


def test_a_folder_without_a_lake_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--lake", str(tmp_path)]) == 2
    assert "nothing is archived in it yet" in capsys.readouterr().err
