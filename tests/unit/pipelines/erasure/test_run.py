"""An erasure that is stopped anywhere, overlaps with other runs, or is undone by a repair completes in the end."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.delta import seal_log_after_commit
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.erasures import APPLICATION_ID, MARKER, read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase_job
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.erasure.ledger import collect_erasure_evidence, read_erasure_states
from commitlake.pipelines.erasure.run import (
    ErasurePlan,
    ErasureResult,
    ErasureTarget,
    finish_erasures,
    plan_erasure,
    purge_erasures,
    run_erasure,
    unfinished_erasures,
)
from commitlake.pipelines.erasure.selection import KeysToErase
from commitlake.pipelines.evidence.archive_evidence import collect_archive_evidence
from commitlake.pipelines.maintenance.compaction import compact_table, plan_compaction
from commitlake.pipelines.maintenance.file_replacement import ConcurrentMaintenanceError
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.quality.checksums import column_hashes, message_hashes
from commitlake.schemas.errors import ExitCode, UsageError
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.tables.profile import COLUMN_CHECKSUMS
from tests.support.erased_lakes import (
    KEY,
    MARK,
    SECRET,
    UNIQUE_KEY,
    archive,
    shop_message,
    shop_messages,
    traces,
    write_lake,
)
from tests.support.lakes import GrowingLake, archive_store, rows_of

NOW = datetime.datetime.now(datetime.UTC)
WEEK = datetime.timedelta(days=7)
LATER_CALLS = pytest.mark.long("a run is stopped at the first call of every step each time")
BETWEEN = pytest.mark.long("a run is stopped after its beginning, in the middle and at its end each time")
OTHER_COLUMN = pytest.mark.long("NULL in one column is refused each time")
STEPS = [
    pytest.param("commitlake.pipelines.erasure.text_erasure", "measure_text_erasure", marks=BETWEEN),
    ("commitlake.pipelines.erasure.run", "begin_erasure"),
    pytest.param("commitlake.pipelines.erasure.run", "read_erased_messages", marks=BETWEEN),
    pytest.param("commitlake.pipelines.erasure.data_file_rewriting", "rewrite_file", marks=BETWEEN),
    ("commitlake.pipelines.erasure.data_file_rewriting", "replace_table_files"),
    pytest.param("commitlake.pipelines.erasure.run", "erase_bodies", marks=BETWEEN),
    pytest.param("commitlake.pipelines.erasure.body_erasure", "wipe_bodies", marks=BETWEEN),
    pytest.param("commitlake.pipelines.erasure.run", "add_erasure_event", marks=BETWEEN),
    pytest.param("commitlake.pipelines.erasure.purge", "vacuum", marks=BETWEEN),
    pytest.param("commitlake.pipelines.erasure.purge", "write_seal", marks=BETWEEN),
    pytest.param("commitlake.pipelines.erasure.purge", "_strip_log_entry", marks=BETWEEN),
    ("commitlake.pipelines.erasure.purge", "_delete_old_log_files"),
    pytest.param("commitlake.pipelines.erasure.purge", "_purge_packs", marks=BETWEEN),
]


class KilledError(BaseException):
    """Stands for the end of a process."""


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs of 50 messages; one of them is to be erased."""
    return write_lake(tmp_path)


def place_of(growing: GrowingLake) -> ErasureTarget:
    return ErasureTarget(growing.lake, "1")


def erase(growing: GrowingLake, *, is_alone: bool = False) -> ErasureResult | None:
    """Do the steps of the job: finish stopped erasures, erase, and purge."""
    place = place_of(growing)
    finish_erasures(place, lambda _: None)
    plan = plan_erasure(place, KeysToErase([KEY]))
    outcome = None if plan.has_nothing_to_erase else run_erasure(place, plan, "a test", WEEK, lambda _: None)
    if is_alone:
        purge_erasures(place, datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    return outcome


def audited(growing: GrowingLake) -> int:
    return audit.main(["--lake", growing.lake.root, "--store", str(growing.store), "--local", "--threads", "1"])


def check_done(growing: GrowingLake, messages: int = 100) -> None:
    """Check that the message is erased and all others exist."""
    assert traces(Path(growing.lake.root)) == []
    assert len(rows_of(growing.lake.uri("messages"))) == messages
    assert unfinished_erasures(growing.lake) == []
    assert audited(growing) == ExitCode.OK


def stop_at(monkeypatch: pytest.MonkeyPatch, module: str, name: str, call: int, *, after: bool) -> None:
    """Stop the run at a call of a function."""
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    calls = 0

    def last(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise KilledError
        found = function(*arguments, **named)
        if calls == call:
            raise KilledError
        return found

    monkeypatch.setattr(f"{module}.{name}", last)


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long("also before each step")), True])
@pytest.mark.parametrize("call", [1, pytest.param(2, marks=LATER_CALLS), pytest.param(3, marks=LATER_CALLS)])
@pytest.mark.parametrize(("module", "name"), STEPS)
def test_a_run_that_is_stopped_is_completed_by_the_next(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch, module: str, name: str, call: int, after: bool
) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, module, name, call, after=after)
        with contextlib.suppress(KilledError):
            erase(growing, is_alone=True)
    erase(growing, is_alone=True)
    check_done(growing)


def test_a_stopped_erasure_is_finished_without_its_key(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, "commitlake.pipelines.erasure.run", "begin_erasure", 1, after=True)
        with pytest.raises(KilledError):
            erase(growing)
    assert audited(growing) == ExitCode.OK  # not erased yet, and not reported as erased
    growing.write(later_messages(growing)[:1])
    archive(growing)
    assert audited(growing) == ExitCode.OK  # only the later copy is erased
    (done,) = finish_erasures(place_of(growing), lambda _: None)
    assert done.state.messages == 1
    purge_erasures(place_of(growing), NOW, lambda _: None, is_only_user=True)
    check_done(growing, messages=101)


@pytest.mark.parametrize(
    "table", ["messages", pytest.param("message_keys", marks=pytest.mark.long("the same race at another table"))]
)
def test_an_archive_run_during_an_erasure_loses_and_restores_nothing(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Another run commits after the erasure has read the table, and before its commit."""
    exchange = importlib.import_module("commitlake.pipelines.erasure.data_file_rewriting").replace_table_files
    archived = False

    def late(lake: Lake, name: str, *arguments: Any, **named: Any) -> int:
        nonlocal archived
        if name == table and not archived:
            archived = True
            growing.write(shop_messages(10, first=100))
            archive(growing)
        return int(exchange(lake, name, *arguments, **named))

    monkeypatch.setattr("commitlake.pipelines.erasure.data_file_rewriting.replace_table_files", late)
    erase(growing, is_alone=True)
    assert archived
    check_done(growing, messages=110)


def test_keys_that_a_follower_read_before_the_erasure_are_not_added_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower has written its files; then the whole erasure happens; then the follower commits."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(50))
    archive_store(growing.store, growing.lake)
    follow = importlib.import_module("commitlake.pipelines.message_keys.table_update")
    advance = follow.commit_with_transaction

    def late(*arguments: Any, **named: Any) -> bool:
        monkeypatch.setattr(follow, "commit_with_transaction", advance)
        erase(growing)
        return bool(advance(*arguments, **named))

    growing.write(shop_messages(1, first=50))
    follow_keys(growing.lake)
    archive_store(growing.store, growing.lake)
    monkeypatch.setattr(follow, "commit_with_transaction", late)
    assert follow_keys(growing.lake).rows == 0
    follow_keys(growing.lake)
    keys = rows_of(growing.lake.uri("message_keys"))
    assert MARK not in repr(keys)
    assert len(keys) == 2 * 50


@pytest.mark.long("conflicts of commits are tested each time in pipelines/maintenance")
def test_a_compaction_that_began_before_the_erasure_is_refused(growing: GrowingLake) -> None:
    bins = plan_compaction(growing.lake, "messages", 128 << 20)
    erase(growing)
    with pytest.raises(ConcurrentMaintenanceError):
        compact_table(growing.lake, "messages", bins, ())
    purge_erasures(place_of(growing), datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    check_done(growing)


def test_maintain_before_and_after_does_not_affect_an_erasure(growing: GrowingLake) -> None:
    assert maintain.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
    erase(growing, is_alone=True)
    assert maintain.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
    check_done(growing)


@pytest.mark.long("archives, erases and repairs in turn")
def test_a_repair_to_an_older_version_does_not_restore_erased_content(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    erase(growing)
    newest = DeltaTable(growing.lake.uri("messages")).version()
    entry = Path(growing.lake.uri("messages")) / "_delta_log" / f"{newest:020}.json"
    entry.write_bytes(entry.read_bytes()[:40])
    assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.OK
    assert "was repeated" in capsys.readouterr().err
    assert MARK not in repr(rows_of(growing.lake.uri("messages")))
    purge_erasures(place_of(growing), datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    check_done(growing)


@pytest.mark.long("a repair after an erasure is tried each time")
def test_the_retention_restarts_after_a_repair_has_undone_an_erasure(growing: GrowingLake) -> None:
    erase(growing)
    (first,) = read_erasure_states(growing.lake)
    newest = DeltaTable(growing.lake.uri("messages")).version()
    entry = Path(growing.lake.uri("messages")) / "_delta_log" / f"{newest:020}.json"
    entry.write_bytes(b"{")
    assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.OK
    (again,) = read_erasure_states(growing.lake)
    assert first.erased_at is not None
    assert again.erased_at is not None
    assert again.erased_at > first.erased_at
    assert again.counts == first.counts
    assert purge_erasures(place_of(growing), first.purge_due_at or NOW, lambda _: None)[0] == []
    purge_erasures(place_of(growing), datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    assert read_erasure_states(growing.lake)[0].purged_at is not None
    check_done(growing)


def test_an_erased_message_is_archived_again_without_its_contents(growing: GrowingLake) -> None:
    """`messages` has lost the run that took the message; its store still has it."""
    erase(growing)
    log = Path(growing.lake.uri("messages")) / "_delta_log"
    for version in range(2, DeltaTable(growing.lake.uri("messages")).version() + 1):
        (log / f"{version:020}.json").write_bytes(b"{")
    first = log / f"{1:020}.json"
    first.write_bytes(b"{")
    maintain.main(["--lake", growing.lake.root, "--repair", "--quiet"])
    archive(growing)
    assert len(rows_of(growing.lake.uri("messages"))) == 100
    assert MARK not in repr(rows_of(growing.lake.uri("messages")))
    assert MARK not in repr(rows_of(growing.lake.uri("message_keys")))
    assert not list(traces(Path(growing.lake.bodies_root)))
    assert audited(growing) == ExitCode.OK
    purge_erasures(place_of(growing), datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    check_done(growing)


@pytest.mark.long("erasures that are stopped and repeated in one pack are tried each time")
def test_two_erasures_in_one_pack_complete(growing: GrowingLake) -> None:
    place = place_of(growing)
    for number, key in enumerate([KEY, "order-3", "order-5"], 1):
        run_erasure(place, plan_erasure(place, KeysToErase([key])), "a test", WEEK, lambda _: None)
        assert [state.number for state in read_erasure_states(growing.lake)] == list(range(1, number + 1))
    purge_erasures(place, datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    check_done(growing)
    assert DeltaTable(growing.lake.uri("messages")).transaction_version(APPLICATION_ID) == 3


@pytest.mark.long("equal bodies are tested each time in connectors/lake/packs")
def test_an_erased_body_that_equals_its_neighbours_does_not_hold_up_other_erasures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first erasure has begun, and was stopped at the packs, as one was that could not end."""
    growing = GrowingLake(tmp_path)
    growing.write([shop_message(number, body=b"hello") for number in range(20)])
    growing.write([shop_message(20, secret=True)])
    archive(growing)
    with monkeypatch.context() as patched:
        stop_at(patched, "commitlake.pipelines.erasure.run", "erase_bodies", 1, after=False)
        with pytest.raises(KilledError):
            run_erasure(place_of(growing), planned(growing, "order-3"), "a test", WEEK, lambda _: None)
    erase(growing, is_alone=True)
    check_done(growing, messages=21)
    assert [state.number for state in read_erasure_states(growing.lake) if state.purged_at] == [1, 2]


@pytest.mark.long("damaged packs are tested each time in connectors/lake/packs")
def test_a_damaged_pack_does_not_hold_up_the_erasure_of_messages_in_others(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = sorted(
        Path(growing.lake.bodies_root).rglob("*.zst"), key=lambda path: int(path.name.split("-")[-3])
    )
    damaged = second.read_bytes()
    second.write_bytes(b"damaged" * 9)
    options = ["--lake", growing.lake.root, "--reason", "a test", "--yes", "--now", "--key"]
    assert erase_job.main([*options, "order-77"]) != ExitCode.OK
    assert "nothing of this pack was changed" in capsys.readouterr().err
    assert erase_job.main([*options, KEY]) != ExitCode.OK  # the first erasure is still reported
    assert "erasure 2 (" in capsys.readouterr().err
    assert not traces(first.parent)
    assert [(state.number, state.is_unfinished) for state in read_erasure_states(growing.lake)] == [
        (1, True),
        (2, False),
    ]
    second.write_bytes(damaged)
    assert erase_job.main(["--lake", growing.lake.root, "--finish", "--now"]) == ExitCode.OK
    check_done(growing)


def planned(growing: GrowingLake, key: str) -> ErasurePlan:
    return plan_erasure(place_of(growing), KeysToErase([key]))


def test_an_unfinished_archive_run_delays_the_purge(growing: GrowingLake) -> None:
    erase(growing)
    growing.write([shop_message(100)])
    growing.archive(finish=False)
    with pytest.raises(UsageError, match="is not finished"):
        purge_erasures(place_of(growing), NOW, lambda _: None, is_only_user=True)
    archive(growing)
    purge_erasures(place_of(growing), NOW, lambda _: None, is_only_user=True)
    check_done(growing, messages=101)


def test_with_other_jobs_a_purge_waits_for_the_retention_and_a_day(growing: GrowingLake) -> None:
    erase(growing)
    place = place_of(growing)
    (state,) = read_erasure_states(growing.lake)
    assert state.erased_at is not None
    due = state.erased_at + WEEK + datetime.timedelta(days=1)
    assert state.purge_due_at == due
    assert purge_erasures(place, due - datetime.timedelta(seconds=1), lambda _: None)[0] == []
    assert [one.number for one in purge_erasures(place, due, lambda _: None)[0]] == [1]


@pytest.mark.long("more messages of the same kind")
def test_a_large_group_of_messages_is_erased_at_once(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(200, secrets=range(0, 200, 2)))
    archive(growing)
    outcome = erase(growing, is_alone=True)
    assert outcome is not None
    assert outcome.state.messages == 100
    check_done(growing, messages=200)


def test_a_lake_without_erasures_has_no_table_of_erasures(growing: GrowingLake) -> None:
    assert erase_nothing(growing.lake) == []
    assert not Path(growing.lake.uri("erasures")).exists()


def erase_nothing(lake: Lake) -> list[Any]:
    place = ErasureTarget(lake, "1")
    assert plan_erasure(place, KeysToErase(["not-there"])).has_nothing_to_erase
    return [*finish_erasures(place, lambda _: None), *purge_erasures(place, NOW, lambda _: None)[0]]


def test_the_checksums_before_and_after_match_the_rows_until_the_purge(growing: GrowingLake) -> None:
    erase(growing)
    rows = pa.Table.from_pylist([row for row in rows_of(growing.lake.uri("erasures")) if row["event"] == "message"])
    assert rows.num_rows == 1
    assert rows.column("topic")[0].as_py() == f"topic-{SECRET % 2}"
    assert rows.column("row_before")[0] != rows.column("row_after")[0]
    purge_erasures(place_of(growing), NOW + WEEK, lambda _: None, is_only_user=True)
    (row,) = [row for row in rows_of(growing.lake.uri("erasures")) if row["event"] == "message"]
    assert [row[name] for name in ("row_before", "lake_before", "body_crc", "detail")] == [None] * 4
    assert row["row_after"] == rows.column("row_after")[0].as_py()


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    "damaged",
    [
        "newest entry",
        *(
            pytest.param(part, marks=pytest.mark.long("one damage is repaired each time"))
            for part in ("all entries", "log", "folder and note")
        ),
    ],
)
def test_a_damaged_table_of_erasures_is_an_error_and_is_rebuilt(growing: GrowingLake, damaged: str) -> None:
    place = place_of(growing)
    for key in (KEY, "order-3"):
        run_erasure(place, plan_erasure(place, KeysToErase([key])), "a test", WEEK, lambda _: None)
    before = rows_of(growing.lake.uri("erasures"))
    log = Path(growing.lake.uri("erasures")) / "_delta_log"
    entries = sorted(log.glob("*.json"))
    if damaged == "log":
        shutil.rmtree(log)
    elif damaged == "folder and note":
        shutil.rmtree(log)
        (Path(growing.lake.root) / "_newest" / "erasures.json").unlink()
    for entry in {"newest entry": entries[-1:], "all entries": entries}.get(damaged, []):
        entry.write_bytes(b"{")
    with pytest.raises(LogDamagedError):
        read_erasure_states(growing.lake)
    assert maintain.main(["--lake", growing.lake.root, "--repair", "--quiet"]) == ExitCode.OK
    assert rows_of(growing.lake.uri("erasures")) == before
    assert audited(growing) == ExitCode.OK
    run_erasure(place, plan_erasure(place, KeysToErase(["order-5"])), "a test", WEEK, lambda _: None)
    assert [state.number for state in read_erasure_states(growing.lake)] == [1, 2, 3]
    purge_erasures(place, datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    check_done(growing)


@pytest.mark.long("archives, erases and repairs in turn")
def test_a_rebuild_of_erasures_brings_back_no_hash_that_the_purge_has_deleted(growing: GrowingLake) -> None:
    erase(growing)
    folder = Path(growing.lake.uri("erasures"))
    before = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    purge_erasures(place_of(growing), NOW, lambda _: None, is_only_user=True)
    purged = rows_of(growing.lake.uri("erasures"))
    for name, data in before.items():  # a file that left the table stays for a day
        for listed in (f"0{name}", f"z{name}"):  # before and after the newest
            (folder / listed).write_bytes(data)
    shutil.rmtree(folder / "_delta_log")
    assert maintain.main(["--lake", growing.lake.root, "--repair", "--quiet"]) == ExitCode.OK
    assert rows_of(growing.lake.uri("erasures")) == purged


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("at", "NULL", marks=OTHER_COLUMN),
        ("at", "arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"UTC\"))')"),
        pytest.param("number", "NULL", marks=OTHER_COLUMN),
        ("erasure_id", "NULL"),
        ("detail", f"'{'[' * 100_000}'"),
        ("detail", "'[1]'"),
        ("detail", """'{"retention_s": 8e13}'"""),
    ],
)
def test_the_error_for_a_changed_table_of_erasures_names_it(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], column: str, value: str
) -> None:
    erase(growing)
    DeltaTable(growing.lake.uri("erasures")).update(predicate="event <> 'message'", updates={column: value})
    seal_log_after_commit(growing.lake.uri("erasures"), None)
    lake = ["--lake", growing.lake.root]
    assert erase_job.main([*lake, "--finish", "--yes"]) == ExitCode.USAGE
    assert "the table 'erasures'" in capsys.readouterr().err
    assert audit.main([*lake, "--local"]) in {ExitCode.OK, ExitCode.USAGE, ExitCode.DAMAGE}


@pytest.mark.parametrize(
    "column",
    [
        "broker",
        pytest.param("physical_offset", marks=OTHER_COLUMN),
        pytest.param("erasure_id", marks=OTHER_COLUMN),
        pytest.param("number", marks=OTHER_COLUMN),
    ],
)
def test_an_erased_message_without_a_place_is_damage(growing: GrowingLake, column: str) -> None:
    erase(growing)
    DeltaTable(growing.lake.uri("erasures")).update(predicate="event = 'message'", updates={column: "NULL"})
    seal_log_after_commit(growing.lake.uri("erasures"), None)
    with pytest.raises(LogDamagedError, match="the table 'erasures': expected broker, physical_offset"):
        read_erased_messages(growing.lake)


def test_rows_of_a_damaged_data_file_of_erasures_are_named(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    erase(growing)
    largest = max(Path(growing.lake.uri("erasures")).glob("*.parquet"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:200])
    assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.DAMAGE
    assert f"not recovered: erasures: the rows of data file {largest.name}" in capsys.readouterr().err


@pytest.mark.parametrize("is_purged", [pytest.param(False, marks=pytest.mark.long("purged ones are harder")), True])
def test_a_lost_data_file_of_erasures_is_restored_from_messages(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], is_purged: bool
) -> None:
    place = place_of(growing)
    for key in ("order-3", KEY):
        run_erasure(place, plan_erasure(place, KeysToErase([key])), "a test", WEEK, lambda _: None)
    if is_purged:
        purge_erasures(place, datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    before = [row for row in rows_of(growing.lake.uri("erasures")) if row["event"] == "message"]
    for file in DeltaTable(growing.lake.uri("erasures")).file_uris():
        if {"begun", "message"} & {*pq.read_table(file).column("event").to_pylist()}:
            Path(file).unlink()
    assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.DAMAGE
    printed = capsys.readouterr().err
    assert "not recovered: erasures: reason and retention of 2 erasures (number 1, 2)" in printed
    assert "the checksums before the erasure" not in printed  # the profiles need them no more
    states = read_erasure_states(growing.lake)
    assert [(state.number, state.messages, state.is_unfinished) for state in states] == [(1, 1, False), (2, 1, False)]
    after = [row for row in rows_of(growing.lake.uri("erasures")) if row["event"] == "message"]
    kept: tuple[str, ...] = ("number", "erasure_id", "broker", "physical_offset", "row_after", "lake_after")
    kept += () if is_purged else ("row_before", "lake_before", "body_ref")
    assert sorted([row[name] for name in kept] for row in after) == sorted(
        [row[name] for name in kept] for row in before
    )
    assert audited(growing) == ExitCode.OK
    assert "are not compared" not in capsys.readouterr().out
    assert plan_erasure(place, KeysToErase([KEY])).has_nothing_to_erase
    run_erasure(place, plan_erasure(place, KeysToErase(["order-5"])), "a test", WEEK, lambda _: None)
    assert read_erasure_states(growing.lake)[-1].number == 3
    assert audited(growing) == ExitCode.OK


def test_the_property_of_erased_messages_protects_no_message_whose_producer_sent_it(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    properties = (("KEYS", KEY), ("UNIQ_KEY", "7F01"), (MARKER, "a" * 32), ("phone", MARK))
    growing.write([*shop_messages(4), shop_message(5, properties=properties)])
    archive(growing)
    place = place_of(growing)
    plan = plan_erasure(place, KeysToErase([KEY]))
    assert plan.message_count == 1
    run_erasure(place, plan, "a test", WEEK, lambda _: None)
    purge_erasures(place, datetime.datetime.now(datetime.UTC), lambda _: None, is_only_user=True)
    assert MARK not in repr(rows_of(growing.lake.uri("messages")))
    assert audited(growing) == ExitCode.OK


def all_values(growing: GrowingLake) -> str:
    """Return everything in the tables of a lake as text: rows of all data files, and logs."""
    found = []
    for path in Path(growing.lake.root).rglob("*"):
        if path.suffix == ".parquet" and "_delta_log" not in str(path):
            found.append(repr(pq.read_table(path).to_pylist()))
        elif path.suffix == ".json":
            found.append(path.read_text())
    return "\n".join(found)


def hashes_of(growing: GrowingLake) -> tuple[str, ...]:
    """Return what confirms a guess of the secret body: its CRC, and the hashes of its row."""
    rows = growing.lake.table("messages").to_pyarrow_table()
    row = rows.filter(pc.equal(rows.column("unique_key"), UNIQUE_KEY)).combine_chunks()
    sums = [column_hashes(row, checksum.columns) for checksum in COLUMN_CHECKSUMS if checksum.name == "row_checksum"]
    return tuple(str(int(value)) for value in (row.column("body_crc")[0].as_py(), message_hashes(row)[0], sums[0][0]))


def check_nothing_confirms(growing: GrowingLake, hashes: tuple[str, ...]) -> None:
    """Check that neither a value nor a sum without the other rows of its window is a hash of the erased row."""
    values = all_values(growing)
    assert [value for value in hashes if value in values] == []
    (erased,) = [row for row in rows_of(growing.lake.uri("messages")) if MARKER in dict(row["properties"])]
    for name in ("tags", "born_host", "body_size", "body_crc"):
        assert erased[name] is None
    minutes = [row for row in rows_of(growing.lake.uri("topic_minutes")) if row["minute"] == start_of_minute(erased)]
    assert [(row["tag"], row["body_bytes"], row["messages"]) for row in minutes] == [(None, 0, 1)]


def start_of_minute(row: dict[str, Any]) -> datetime.datetime:
    at: datetime.datetime = row["store_timestamp"]
    return at.replace(second=0, microsecond=0)


def test_nothing_that_is_left_confirms_a_guess_of_an_erased_body(growing: GrowingLake) -> None:
    hashes = hashes_of(growing)
    assert all(value in all_values(growing) for value in hashes)  # a window has one message
    erase(growing, is_alone=True)
    check_nothing_confirms(growing, hashes)
    check_done(growing)
    (facts,) = collect_erasure_evidence(growing.lake, read_erasure_states(growing.lake))
    assert set(facts["checksums"]) == {"row_after", "lake_after"}
    assert None not in facts["checksums"].values()


@pytest.mark.long("changes only with the format of erasures")
def test_an_erasure_of_an_earlier_version_is_completed(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept tags, hosts, sizes and CRCs, and the hashes of rows before."""
    hashes = hashes_of(growing)
    with monkeypatch.context() as patched:
        erased_rows = importlib.import_module("commitlake.pipelines.masking.erased_rows")
        patched.setattr(erased_rows, "CHANGED_COLUMNS", ("unique_key", "keys", "properties", "body_ref"))
        patched.setattr(erased_rows, "KEPT_PROPERTIES", erased_rows.KEPT_PROPERTIES | {"TAGS"})
        patched.setattr(
            "commitlake.pipelines.masking.erasure_rows._sum_changes_json", lambda before, _: [None] * len(before)
        )
        patched.setattr("commitlake.pipelines.erasure.data_file_rewriting.FORM", 0)
        for step in ("correct_profiles", "recount_minutes", "delete_content_hashes"):
            patched.setattr(f"commitlake.pipelines.erasure.run.{step}", lambda *_: None)
        run_erasure(place_of(growing), planned(growing, KEY), "a test", WEEK, lambda _: None)
    assert audited(growing) == ExitCode.OK  # as the earlier version left it
    assert [state.number for state in unfinished_erasures(growing.lake)] == [1]
    finish_erasures(place_of(growing), lambda _: None)
    assert audited(growing) == ExitCode.OK
    purge_erasures(place_of(growing), NOW + WEEK, lambda _: None, is_only_user=True)
    check_nothing_confirms(growing, hashes)
    check_done(growing)


def properties_of(key: str, unique_key: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (("KEYS", key), ("UNIQ_KEY", unique_key), *more)


def later_messages(growing: GrowingLake) -> list[NewMessage]:
    """Return messages that are archived after the erasure: four copies of the erased one, and one that is none."""
    (msg_id,) = [row["msg_id"] for row in rows_of(growing.lake.uri("messages")) if row["keys"] == [KEY]]
    body = f'{{"name":"{MARK}"}}'.encode()
    origin = ("ORIGIN_MESSAGE_ID", msg_id)
    return [
        shop_message(100, body=body, properties=properties_of(KEY, UNIQUE_KEY, ("phone", MARK))),  # a delivered timer
        shop_message(101, body=body, properties=properties_of(f"x {KEY}", f"7F{MARK}99")),  # sent again
        shop_message(102, body=body, properties=(("ORIGIN_MESSAGE_ID", msg_id), ("x", MARK))),  # a retry without ids
        shop_message(103, topic="rmq_trace", body=body, properties=properties_of(UNIQUE_KEY, "8F03")),  # a trace
        shop_message(104, topic="%RETRY%g", body=body, properties=properties_of("other", "8F04", origin)),
        shop_message(105),
    ]


def test_later_copies_of_an_erased_message_are_erased_when_they_arrive(growing: GrowingLake) -> None:
    later = later_messages(growing)
    erase(growing, is_alone=True)
    growing.write(later)
    result = archive(growing)
    assert any("5 messages were erased on arrival" in note for note in result.notes)
    events = [row["event"] for row in rows_of(growing.lake.uri("erasures"))]
    assert events.count("copy") == 5
    keys = {row["key"] for row in rows_of(growing.lake.uri("message_keys"))}
    assert "order-105" in keys
    assert not {KEY, UNIQUE_KEY, "x", "other"} & keys
    assert [facts["erased_on_arrival"] for facts in collect_archive_evidence(growing.lake, 0)] == [0, 0, 5]
    check_done(growing, messages=106)
    assert read_erasure_states(growing.lake)[0].messages == 1


def test_an_erasure_by_id_recognises_copies_of_the_message_and_no_other_message_with_its_key(
    growing: GrowingLake,
) -> None:
    later = later_messages(growing)
    place = place_of(growing)
    run_erasure(place, plan_erasure(place, KeysToErase(ids=[UNIQUE_KEY])), "a test", WEEK, lambda _: None)
    growing.write(later)
    archive(growing)
    left = [row["properties"] for row in rows_of(growing.lake.uri("messages")) if KEY in (row["keys"] or [])]
    assert [dict(properties)["UNIQ_KEY"] for properties in left] == [f"7F{MARK}99"]
    assert audited(growing) == ExitCode.OK


def test_later_copies_can_be_kept_and_an_earlier_erasure_does_not_erase_them_then(growing: GrowingLake) -> None:
    later = later_messages(growing)
    erase(growing)
    options = ["--lake", growing.lake.root, "--key", KEY, "--reason", "a test", "--yes", "--keep-later-copies"]
    assert erase_job.main(options) == ExitCode.OK
    growing.write([later[1]])
    archive(growing)
    assert sum(KEY in (row["keys"] or []) for row in rows_of(growing.lake.uri("messages"))) == 1
    growing.write([later[0]])  # its id is still known
    archive(growing)
    assert sum(KEY in (row["keys"] or []) for row in rows_of(growing.lake.uri("messages"))) == 1


def test_no_row_of_erasures_has_a_text_by_which_copies_are_recognised(growing: GrowingLake) -> None:
    erase(growing)
    rows = rows_of(growing.lake.uri("erasures"))
    assert [row["event"] for row in rows].count("later") == 3  # the key, the unique key and the message id
    assert MARK not in repr(rows)
