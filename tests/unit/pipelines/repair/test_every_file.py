"""Each file of each table, in a lake whose earlier versions are gone, with the stores at hand and without them."""

from __future__ import annotations

import datetime
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta import open_delta_table
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.evidence.chain import append_evidence
from commitlake.pipelines.quality.expectation_input import BeginJudging
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, RowOrigin
from tests.support.audited_lakes import judge_nothing
from tests.support.jmq_consumers import JmqShop
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.logs import closed_segment, new_message, open_segment, write_store
from tests.support.repairs import contents, forget_earlier_versions
from tests.support.small_stores import Clock
from tests.support.table_damages import damage

REPLAYED = ("replays", "replay_messages", "replay_rows")
HISTORIES = ("store_config", "consumer_offsets", "subscriptions", "archive_runs", "erasures", "evidence", *REPLAYED)
"""Tables with rows that no store has: earlier settings, snapshots, and what jobs have done."""
OF_STORES = ("messages", "message_keys", "edges", "topic_minutes", "quarantine", "gaps", "profiles", "consumptions")
OF_LOGS = {"entry", "log", "checkpoint"}
pytestmark = pytest.mark.long("each reads a lake with all tables, and its stores, again")
LATER = datetime.datetime(2023, 11, 18, tzinfo=datetime.UTC)
SEGMENT = 4096
CASES = [
    (table, what)
    for table, declared in LAKE_TABLES.items()
    if table != "quality_results" and declared.origin is not RowOrigin.COMPUTED  # test_lag_minutes repairs those
    for what in ("file", "entry", "checkpoint", "log")
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with rows in all tables, merged, and without any earlier version."""
    return fill(GrowingLake(tmp_path_factory.mktemp("whole")), judge_nothing)


def fill(growing: GrowingLake, judge: BeginJudging | None) -> GrowingLake:
    """Archive a growing store, one that lacks a segment, and one of JMQ, and write the tables of other jobs."""
    _write_others(growing)
    messages = shop_messages(60, days=2)
    messages[40] = replace(messages[40], topic="%DLQ%g")  # a record with a step
    for number, first in enumerate(range(0, len(messages), 20)):
        growing.configure(number + 1)
        growing.write(messages[first : first + 20])
        if number == 1:  # its CRC does not match any more
            growing.log[growing.log.index(messages[30].body)] ^= 1
            growing.write([])
        archive_all(growing, judge)
    for number in range(2):
        _write_history(growing, number)
    asked = ["--key", "order-3", "--reason", "asked", "--yes", "--quiet"]
    assert erase.main(["--lake", growing.lake.root, *asked]) == ExitCode.OK
    forget_earlier_versions(growing.lake)
    return growing


def _write_others(growing: GrowingLake) -> None:
    later = [new_message(number, "payments") for number in range(5)]
    segments = [(0, closed_segment(later, SEGMENT)), (2 * SEGMENT, open_segment(later, SEGMENT, 2 * SEGMENT))]
    write_store(growing.folder / "broker-b", segments)
    shop = JmqShop(growing.folder / "jmq", Clock())
    shop.send(0, 8)
    shop.consume("mail", 2)
    shutil.move(shop.store, growing.folder / "broker-j")


def _write_history(growing: GrowingLake, number: int) -> None:
    lake, taken = growing.lake, LATER + datetime.timedelta(hours=number)
    offsets = {OffsetOwner(OffsetKind.GROUP, "g", "topic-00", 0): number}
    subscriptions = {GroupTopic("g", "topic-00"): Subscription("TAG", f"Tag{number}", number)}
    times = {OffsetKind.GROUP: taken}
    snapshot = StoreSnapshot("broker-a", SnapshotSource.FILE, times, offsets, taken, subscriptions)
    append_snapshot(lake, snapshot)
    append_evidence(lake, Ed25519PrivateKey.generate(), "audit", {}, "1")
    for table in REPLAYED:
        row: dict[str, object] = {"replay_id": f"r{number}", **({"event": "finished"} if table == "replays" else {})}
        columns = LAKE_TABLES[table].columns
        append_rows(lake, table, pa.Table.from_pylist([row], arrow_schema(columns)))


def stores_of(growing: GrowingLake) -> str:
    return str(growing.folder / "broker-*")


def archive_all(growing: GrowingLake, judge: BeginJudging | None = judge_nothing) -> None:
    run_archive(HERE, Config(stores_of(growing), growing.lake, judge=judge))


def rows_in(growing: GrowingLake, *tables: str) -> dict[str, list[str]]:
    """Return rows without the stores' paths, the checksums of places of bodies, and what an erasure changes."""
    hidden = {"segment", "judged_at", "lake_checksum", "parser_version", "first_bytes", "found"}
    hidden |= {"null_unique_key", "null_keys", "null_tags", "observed_value", "unexpected_count", "examples", "success"}
    return contents(growing.lake, *tables, without=hidden)


def run_audit(growing: GrowingLake) -> int:
    return audit.main(["--lake", growing.lake.root, "--local", "--deep", "--store", stores_of(growing)])


def repair(growing: GrowingLake, *more: str) -> int:
    return maintain.main(["--lake", growing.lake.root, "--repair", *more])


def damage_table(growing: GrowingLake, table: str, what: str) -> None:
    """Remove the last data file of a table, or cut or remove files of its log."""
    uri = growing.lake.uri(table)
    if what == "log":
        shutil.rmtree(Path(uri) / "_delta_log")
    elif what == "file":
        damage(max(map(Path, open_delta_table(uri).file_uris())), "deleted")
    elif what == "checkpoint":
        open_delta_table(uri).create_checkpoint()
        damage(max(Path(uri).glob("_delta_log/*.checkpoint.parquet")), "cut")
    else:
        for checkpoint in Path(uri).glob("_delta_log/*checkpoint*"):
            checkpoint.unlink()
        damage(sorted(Path(uri).glob("_delta_log/*.json"))[1], "cut")


def test_the_lake_has_all_these_tables_and_is_sound(whole: GrowingLake) -> None:
    rows = rows_in(whole, *LAKE_TABLES)
    assert all(rows.values()), [table for table, found in rows.items() if not found]
    assert run_audit(whole) == ExitCode.OK


@pytest.mark.parametrize(("table", "what"), CASES)
def test_each_file_is_restored_with_the_stores(
    whole: GrowingLake, tmp_path: Path, table: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_with_stores(whole, tmp_path, table, what, capsys)


@pytest.mark.parametrize("what", ["file", "entry", "checkpoint", "log"])
def test_judgements_are_restored_with_the_stores(
    judged: GrowingLake, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_with_stores(judged, tmp_path, "quality_results", what, capsys)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """The same lake, with all rows of `quality_results`."""
    return fill(GrowingLake(tmp_path_factory.mktemp("judged")), None)


def check_with_stores(
    whole: GrowingLake, tmp_path: Path, table: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = whole.copy_to(tmp_path)
    damage_table(growing, table, what)
    code = repair(growing, "--store", stores_of(growing))
    printed = capsys.readouterr()
    if code != ExitCode.OK:
        assert code == ExitCode.DAMAGE
        assert table in HISTORIES or (table, what) == ("consumptions", "log")  # how many records it had is not known
        assert f"not recovered: {table}" in printed.err
    archive_all(growing)
    compared = {*OF_STORES, *([table] if code == ExitCode.OK and table not in ("archive_runs", "erasures") else ())}
    assert rows_in(growing, *compared) == rows_in(whole, *compared)
    capsys.readouterr()
    assert run_audit(growing) == ExitCode.OK, capsys.readouterr().out
    assert repair(growing) == ExitCode.OK


@pytest.mark.parametrize(("table", "what"), CASES)
def test_what_is_lost_without_the_stores_is_said_once_and_comes_back_with_them(
    whole: GrowingLake, tmp_path: Path, table: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = whole.copy_to(tmp_path)
    damage_table(growing, table, what)
    code = repair(growing)
    printed = capsys.readouterr().err
    found, expected = rows_in(growing, table), rows_in(whole, table)
    lost = {*expected[table]} - {*found[table]} if table not in ("archive_runs", "edges") else set()
    assert (code, f"not recovered: {table}" in printed) == (
        (ExitCode.DAMAGE, True) if lost or code else (ExitCode.OK, False)
    )
    is_named = ExitCode.DAMAGE if lost and table == "messages" else ExitCode.OK
    assert run_audit(growing) == is_named, capsys.readouterr().out
    if table in OF_STORES:
        assert repair(growing, "--store", stores_of(growing)) == ExitCode.OK
        archive_all(growing)
        assert rows_in(growing, *OF_STORES) == rows_in(whole, *OF_STORES)
        assert run_audit(growing) == ExitCode.OK
