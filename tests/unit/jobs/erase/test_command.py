"""Tests of erase: erased and kept data, and the result of an audit afterwards."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.erasures import MARKER
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_reader import COLUMNS, fetch_body
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.archive import command as archive_command
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.masking.erased_rows import CHANGED_COLUMNS
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from commitlake.schemas.tables.archive_runs import QUARANTINE
from commitlake.schemas.tables.replays import REPLAY_ROWS, REPLAYS
from tests.support.audited_lakes import judge_nothing
from tests.support.erased_lakes import KEY, MARK, SECRET, UNIQUE_KEY, archive, shop_message, traces, write_lake
from tests.support.indexed_stores import Clock
from tests.support.jmq_stores import OPTIONS
from tests.support.journals import new_message as journal_message
from tests.support.lakes import GrowingLake, rows_of
from tests.support.logs import new_message

REASON = ("--reason", "request 17 of 2026-11-20")


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs of 50 messages; one of them is to be erased."""
    return write_lake(tmp_path)


def run(capsys: pytest.CaptureFixture[str], growing: GrowingLake, *more: str) -> tuple[int, str]:
    """Return exit code and standard error of a run."""
    code = erase.main(["--lake", growing.lake.root, *more])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def erase_key(capsys: pytest.CaptureFixture[str], growing: GrowingLake, *more: str) -> str:
    """Erase the secret message."""
    code, printed = run(capsys, growing, "--key", KEY, *REASON, "--yes", *more)
    assert code == ExitCode.OK, printed
    return printed


def audit_of(capsys: pytest.CaptureFixture[str], growing: GrowingLake, *more: str) -> tuple[int, str]:
    """Return exit code and text of an audit of the lake against the store."""
    code = audit.main(["--lake", growing.lake.root, "--store", str(growing.store), "--local", "--threads", "1", *more])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def messages(growing: GrowingLake) -> list[dict[str, Any]]:
    """Return all rows of messages, in the log's order."""
    return sorted(
        DeltaTable(growing.lake.uri("messages")).to_pyarrow_table().to_pylist(), key=lambda row: row["physical_offset"]
    )


def test_the_newest_tables_and_the_packs_have_no_trace_of_an_erased_message(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = messages(growing)
    printed = erase_key(capsys, growing)
    after = messages(growing)
    assert MARK not in repr(after)
    assert MARK not in repr(rows_of(growing.lake.uri("message_keys")))
    assert not [path for path in traces(Path(growing.lake.root)) if path.endswith(".zst")]
    assert [row for row in after if row["physical_offset"] != before[SECRET]["physical_offset"]] == [
        row for number, row in enumerate(before) if number != SECRET
    ]
    changed = {name for name in before[SECRET] if before[SECRET][name] != after[SECRET][name]}
    assert changed == set(CHANGED_COLUMNS)
    assert all(after[SECRET][name] is None for name in CHANGED_COLUMNS if name != "properties")
    kept = dict(after[SECRET]["properties"])
    assert kept.pop(MARKER)
    assert kept == {"DELAY": "3", "REAL_TOPIC": f"topic-{SECRET % 2}"}
    assert "erasure 1 (" in printed
    assert "messages: 1 row, 1 data file rewritten" in printed


def test_all_other_bodies_can_still_be_read(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    erase_key(capsys, growing)
    store = open_pack_store(growing.lake.packs)
    for number, row in enumerate(messages(growing)):
        body = fetch_body(store, {name: row[name] for name in COLUMNS})
        assert body == (None if number == SECRET else shop_message(number).body)


def test_an_audit_against_the_store_finds_no_differences_after_an_erasure(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    erase_key(capsys, growing)
    code, printed = audit_of(capsys, growing)
    assert code == ExitCode.OK, printed
    assert "1 of the messages are erased, by 1 erasure" in printed
    assert "different" not in printed


def test_an_audit_finds_a_change_in_the_window_of_an_erased_message(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checksums of the window must still match for the other messages."""
    erase_key(capsys, growing)
    table = DeltaTable(growing.lake.uri("messages"))
    offset = messages(growing)[SECRET]["physical_offset"]
    table.update(predicate=f"physical_offset = {offset}", updates={"unique_key": "'other'"})
    code, printed = audit_of(capsys, growing, "--no-bodies")
    assert code == ExitCode.DAMAGE
    assert "row checksum" in printed


def test_no_trace_is_left_in_any_file_after_older_versions_are_deleted(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(growing.lake.root)
    assert traces(root)
    erase_key(capsys, growing)
    assert traces(root)  # older versions
    code, printed = run(capsys, growing, "--finish", "--now")
    assert code == ExitCode.OK, printed
    assert traces(root) == []
    assert "older versions of 1 erasure are deleted" in printed
    code, printed = audit_of(capsys, growing, "--deep")
    assert code == ExitCode.OK, printed
    archive(growing)
    growing.write([shop_message(200)])
    assert archive(growing).messages == 1
    assert audit_of(capsys, growing)[0] == ExitCode.OK
    assert traces(root) == []


def test_the_page_of_the_last_run_is_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    message = shop_message(0, properties=(("KEYS", MARK), ("TAGS", "invalid-")))
    growing = GrowingLake(tmp_path)
    growing.write([message])
    segment = next((growing.store / "commitlog").iterdir())
    segment.write_bytes(segment.read_bytes().replace(b"invalid-", b"invalid\xff"))
    given = ["--store", str(growing.store), "--lake", str(lake), "--local", "--threads", "1", "--quiet"]
    assert archive_command.main(given) in (ExitCode.OK, ExitCode.DAMAGE)
    page = lake / "quality.html"
    assert MARK in page.read_text()
    assert erase.main(["--lake", str(lake), "--key", MARK, *REASON, "--yes", "--now"]) == ExitCode.OK
    assert not page.exists()


def test_maintain_keeps_older_versions_until_the_retention_ends(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = erase_key(capsys, growing, "--retention", "2d")
    assert "older versions of the tables hold keys and properties until" in printed
    assert "erasures are deleted" not in printed
    assert maintain.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
    assert traces(Path(growing.lake.root))
    (row,) = json.loads("[" + _listed(capsys, growing) + "]")
    begun, until = (datetime.datetime.fromisoformat(row[name]) for name in ("begun_at", "older_versions_until"))
    assert datetime.timedelta(days=3) <= until - begun < datetime.timedelta(days=3, minutes=10)
    assert (row["state"], row["messages"], row["reason"]) == ("erased", 1, REASON[1])


def _listed(capsys: pytest.CaptureFixture[str], growing: GrowingLake) -> str:
    capsys.readouterr()
    assert erase.main(["--lake", growing.lake.root, "--list", "--output", "jsonl"]) == ExitCode.OK
    return capsys.readouterr().out.strip()


def test_records_in_which_keys_are_not_looked_for_are_named(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    body = serialize_batch([BatchItem(0, MARK.encode(), serialize_properties([("KEYS", KEY)]))])
    properties = (("INNER_BASE", "0"), ("INNER_NUM", "1"))
    growing.write([new_message(0, topic="Batched", body=body, sys_flag=INNER_BATCH, properties=properties)])
    archive(growing)
    code, printed = run(capsys, growing, "--key", KEY, *REASON, "--dry-run")
    assert code == ExitCode.DAMAGE
    assert "1 record of topics with queue.type=BatchCQ that hold several messages each." in printed
    code, _ = run(capsys, growing, "--id", "7F0000010000000000000000000000FF", *REASON, "--dry-run")
    assert code == ExitCode.OK


def test_a_dry_run_prints_what_would_be_done_and_changes_nothing(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _state(growing)
    code, printed = run(capsys, growing, "--key", KEY, *REASON, "--dry-run")
    assert code == ExitCode.OK
    assert "1 message, including the copies" in printed
    assert "messages: 1 row in 1 data file" in printed
    assert "message_keys: 2 rows in 1 data file" in printed
    assert "packs: 1 body (" in printed
    assert "nothing was changed" in printed
    assert _state(growing) == before


def _state(growing: GrowingLake) -> dict[str, float]:
    root = Path(growing.lake.root)
    return {str(path): path.stat().st_mtime for path in root.rglob("*") if path.is_file()}


def test_a_second_erasure_of_the_same_key_erases_nothing(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    erase_key(capsys, growing)
    assert "nothing was erased" in erase_key(capsys, growing)
    assert DeltaTable(growing.lake.uri("erasures")).transaction_version("commitlake.erasure") == 1


@pytest.mark.parametrize("option", ["--unique-key", "--id"])
def test_a_message_is_erased_by_its_ids(growing: GrowingLake, capsys: pytest.CaptureFixture[str], option: str) -> None:
    code, printed = run(capsys, growing, option, UNIQUE_KEY, *REASON, "--yes")
    assert code == ExitCode.OK, printed
    assert MARK not in repr(messages(growing))


def test_an_offset_message_id_names_one_record_and_its_copies(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    growing.write([shop_message(100, secret=True, topic="%RETRY%group"), shop_message(101)])
    archive(growing)
    copy = messages(growing)[100]
    code, printed = run(capsys, growing, "--id", copy["msg_id"], *REASON, "--yes")
    assert code == ExitCode.OK, printed
    assert "2 messages, including the copies" in printed
    assert MARK not in repr(messages(growing))


def test_keys_are_read_from_a_file(growing: GrowingLake, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(f"{KEY}\n\norder-3\nnot-there\n")
    code, printed = run(capsys, growing, "--keys", str(file), *REASON, "--yes")
    assert code == ExitCode.OK, printed
    assert "erasure 1 (" in printed
    assert "): 2 messages" in printed


def test_keys_that_no_message_has_are_named(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(f"{KEY}\nno-such-key\r\n  another\u2028one\n")
    code, printed = run(capsys, growing, "--keys", str(file), *REASON, "--dry-run")
    assert code == ExitCode.OK
    assert "1 message" in printed
    assert "2 of the keys and ids match no message, or only erased ones: another\\u2028one, no-such-key" in printed
    code, printed = run(capsys, growing, "--key", KEY, *REASON, "--dry-run")
    assert "of the keys and ids" not in printed


def test_a_rebuilt_table_of_keys_has_no_erased_keys(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    for table in ("message_keys",):  # as if it was made again, from a version before the erasure
        for path in sorted(Path(growing.lake.uri(table)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    (Path(growing.lake.root) / "_newest" / "message_keys.json").unlink()
    printed = erase_key(capsys, growing)
    assert "messages: 1 row" in printed
    follow_keys(growing.lake)
    assert MARK not in repr(rows_of(growing.lake.uri("message_keys")))
    assert len(rows_of(growing.lake.uri("message_keys"))) == 2 * 99


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "no messages are chosen"),
        (["--key", "a"], "--reason: expected the reason of the erasure"),
        (["--key", "a", "--reason", "of a"], "--reason contains one of the keys"),
        (["--key", "", "--reason", "b"], "a key or id is empty"),
        (["--finish", "--key", "a"], "--key has no effect with --finish"),
        (["--finish", "--list"], "cannot be used together"),
        (["--keys", "/nowhere", "--reason", "b"], "the file cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], given: list[str], expected: str
) -> None:
    code, printed = run(capsys, growing, *given)
    assert code == ExitCode.USAGE
    assert expected in printed


def test_nothing_is_erased_without_a_confirmation(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(capsys, growing, "--key", KEY, *REASON)
    assert code == ExitCode.USAGE
    assert "there is no terminal to ask" in printed
    assert MARK in repr(messages(growing))


def test_messages_of_a_jmq_lake_are_erased(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "broker-a"
    with JournalStore.open(store, OPTIONS, clock=Clock()) as journal:
        for number in range(60):
            is_secret = number == SECRET
            properties = (("city", f"{MARK} city" if is_secret else "Zürich"),)
            journal.put(
                journal_message(number, f"topic-{number % 3}", f"{MARK if is_secret else number} body".encode(),
                                business_id=KEY if is_secret else f"order-{number}", properties=properties)
            )  # fmt: skip
    lake = Lake(str(tmp_path / "lake"))
    run_archive(HERE, Config(str(store), lake, judge=judge_nothing))
    root = Path(lake.root)
    assert traces(root)
    arguments = ["--lake", lake.root, "--key", KEY, *REASON, "--yes", "--now"]
    assert erase.main(arguments) == ExitCode.OK
    assert traces(root) == []
    assert audit.main(["--lake", lake.root, "--store", str(store), "--local", "--threads", "1"]) == ExitCode.OK
    rows = DeltaTable(lake.uri("messages")).to_pyarrow_table().to_pylist()
    assert sum(MARKER in dict(row["properties"] or ()) for row in rows) == 1
    assert len(rows) == 60


def test_keys_in_texts_of_other_tables_are_erased(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    """The texts are a damaged range in quarantine, and the plan of a replay."""
    plan = json.dumps({"condition": f"array_contains(keys, '{KEY}')", "command": f"--key {KEY} --key {KEY}0", "n": 17})
    replay = {"replay_id": "r", "event": "planned", "plan": plan}
    damaged = {"broker": "broker-a", "start_offset": 5, "first_bytes": b"\x01" + KEY.encode() + b"\x02", "found": "x"}
    other = {"broker": "broker-a", "start_offset": 9, "first_bytes": KEY.encode() + b"0", "found": "y"}
    for name, schema, rows in (
        ("replays", REPLAYS, [replay]),
        ("quarantine", QUARANTINE, [damaged, other]),
    ):
        append_rows(growing.lake, name, pa.Table.from_pylist(rows, schema=arrow_schema(schema)))
    printed = erase_key(capsys, growing)
    assert "quarantine: 1 row" in printed
    assert "replays: 1 row" in printed
    (changed,) = rows_of(growing.lake.uri("replays"))
    assert json.loads(changed["plan"]) == {
        "condition": "array_contains(keys, '[erased]')", "command": f"--key [erased] --key {KEY}0", "n": 17
    }  # fmt: skip
    rows = sorted(rows_of(growing.lake.uri("quarantine")), key=lambda row: row["start_offset"])
    assert [(row["first_bytes"], row["found"]) for row in rows] == [(None, "x"), (other["first_bytes"], "y")]


def test_copies_of_a_replay_lose_their_contents(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    places = [messages(growing)[number]["physical_offset"] for number in (SECRET, SECRET + 1)]
    rows = [
        {"replay_id": "r", "is_changed": True, "broker": "broker-a", "physical_offset": offset, "keys": [KEY],
         "properties": [("phone", MARK)], "body": MARK.encode()}
        for offset in places
    ]  # fmt: skip
    schema = arrow_schema(REPLAY_ROWS)
    append_rows(growing.lake, "replay_rows", pa.Table.from_pylist(rows, schema=schema))
    assert "replay_rows: 1 row" in erase_key(capsys, growing)
    erased, other = sorted(rows_of(growing.lake.uri("replay_rows")), key=lambda row: row["physical_offset"])
    assert (erased["keys"], erased["properties"], erased["body"]) == (None, None, None)
    assert erased["error"] == "the message was erased"
    assert (other["keys"], other["body"], other["error"]) == ([KEY], MARK.encode(), None)
