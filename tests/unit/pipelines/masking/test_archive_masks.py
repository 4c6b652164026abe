"""Lakes whose messages are masked when they are archived: their contents, and their audits."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.packs.body_reader import COLUMNS, fetch_body
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.query import command as query
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.masking.archive_masks import MASKED, ArchiveMasks, parse_archive_masks, parse_lake_masks
from commitlake.pipelines.masking.masks import parse_mask
from commitlake.schemas.errors import CommitLakeError, ExitCode, UsageError
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, body_crc
from commitlake.schemas.layouts.rocketmq.properties import parse_properties, serialize_properties
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, BodyCodec, compression_bits
from commitlake.schemas.remoting.batch import BatchItem, parse_batch, serialize_batch
from tests.support.audited_lakes import judge_nothing
from tests.support.erased_lakes import KEY, SECRET, UNIQUE_KEY, shop_message, shop_messages, traces
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message

ENVIRONMENT = {"COMMITLAKE_MASK_KEY": "a key"}
RULES = ("keys=hash", "body.name=null", "property.phone=last:2", "property.UNIQ_KEY=hash")
JSON = b'{"number":17,"name":"CANARY Erika"}'


def masks_of(*rules: str) -> ArchiveMasks:
    """Return rules with the tests' key."""
    masks = parse_archive_masks(rules, ENVIRONMENT)
    assert masks is not None
    return masks


def archive(growing: GrowingLake, *rules: str) -> Result:
    """Archive new messages with these rules."""
    masks = parse_archive_masks(rules, ENVIRONMENT)
    return run_archive(HERE, Config(str(growing.store), growing.lake, judge=judge_nothing, masks=masks))


def write(folder: Path, messages: list[NewMessage], *rules: str) -> tuple[GrowingLake, Result]:
    """Write a lake of these messages."""
    growing = GrowingLake(folder)
    growing.write(messages)
    return growing, archive(growing, *rules)


def rows_of(growing: GrowingLake) -> list[dict[str, Any]]:
    """Return all messages in the log's order, with their bodies."""
    store = open_pack_store(growing.lake.packs)
    rows = DeltaTable(growing.lake.uri("messages")).to_pyarrow_table().sort_by("physical_offset").to_pylist()
    return [
        row | {"properties": dict(row["properties"]), "body": fetch_body(store, {name: row[name] for name in COLUMNS})}
        for row in rows
    ]


def audited(growing: GrowingLake) -> int:
    """Return the exit code of an audit with the store next to the lake."""
    return audit.main(["--lake", growing.lake.root, "--store", str(growing.store), "--local", "--threads", "1"])


def test_no_file_of_the_lake_has_a_masked_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "a key")
    growing, _ = write(tmp_path, shop_messages(50), *RULES)
    assert traces(Path(growing.lake.root)) == []
    row = rows_of(growing)[SECRET]
    hashed = parse_mask("keys=hash").mask_value(KEY, b"a key")
    assert row["keys"] == [hashed]
    assert (
        row["unique_key"] == row["properties"]["UNIQ_KEY"] == parse_mask("keys=hash").mask_value(UNIQUE_KEY, b"a key")
    )
    assert row["properties"] == {
        "KEYS": hashed, "UNIQ_KEY": row["unique_key"], "TAGS": "Tag2", "phone": "************17", "DELAY": "3",
        "REAL_TOPIC": "topic-1",
    }  # fmt: skip
    assert row["body"] == b'{"number":17,"name":null,"note":"abcabc"}'
    assert (row["body_size"], row["body_crc"]) == (len(row["body"]), body_crc(row["body"]))
    keys = DeltaTable(growing.lake.uri("message_keys")).to_pyarrow_table()
    assert {hashed, row["unique_key"]} <= set(keys.column("key").to_pylist())
    assert audited(growing) == ExitCode.OK


def test_a_query_by_key_warns_that_keys_are_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing, _ = write(tmp_path, [shop_message(1)], "keys=last:2", "property.UNIQ_KEY=null")
    assert query.main(["--lake", growing.lake.root, "--key", "order-1"]) == ExitCode.OK
    assert "are masked (keys=last:2, property.UNIQ_KEY=null): search for" in capsys.readouterr().err
    assert query.main(["--lake", growing.lake.root, "--key", "*****-1"]) == ExitCode.OK
    captured = capsys.readouterr()
    assert "*****-1" in captured.out
    assert "masked" not in captured.err


def test_later_messages_are_masked_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "a key")
    growing, _ = write(tmp_path, [shop_message(0)], *RULES)
    growing.write([shop_message(1, secret=True)])
    archive(growing, *RULES)
    assert traces(Path(growing.lake.root)) == []
    assert audited(growing) == ExitCode.OK


def test_an_audit_needs_the_key_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    growing, _ = write(tmp_path, [shop_message(0)], "keys=hash")
    assert audited(growing) == ExitCode.USAGE
    assert "masks with the rule hash need a key: set COMMITLAKE_MASK_KEY" in capsys.readouterr().err
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "another")
    assert audited(growing) == ExitCode.USAGE
    assert "masked with a different key" in capsys.readouterr().err


def test_an_audit_finds_a_body_that_was_masked_differently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, _ = write(tmp_path, shop_messages(3), "body.name=text:x")
    assert audited(growing) == ExitCode.OK
    other = masks_of("body.name=text:y")
    monkeypatch.setattr("commitlake.pipelines.audit.compared_sides.parse_lake_masks", lambda *_: other)
    assert audited(growing) == ExitCode.DAMAGE


def test_an_erasure_of_a_masked_message_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "a key")
    growing, _ = write(tmp_path, shop_messages(20), "keys=hash", "body.name=hash")
    key = parse_mask("keys=hash").mask_value(KEY, b"a key")
    assert erase.main(["--lake", growing.lake.root, "--key", str(key), "--reason", "a test", "--yes"]) == ExitCode.OK
    assert rows_of(growing)[SECRET]["body"] is None
    assert audited(growing) == ExitCode.OK


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("codec", [BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD])
def test_compressed_bodies_stay_compressed(tmp_path: Path, codec: BodyCodec) -> None:
    stored = zlib.compress(JSON) if codec is BodyCodec.ZLIB else pa.compress(JSON, str(codec), asbytes=True)
    message = new_message(0, body=stored, sys_flag=compression_bits(codec))
    growing, _ = write(tmp_path, [message], "body.name=text:gone")
    (row,) = rows_of(growing)
    assert (row["body"], row["body_codec"]) == (b'{"number":17,"name":"gone"}', str(codec))
    assert audited(growing) == ExitCode.OK


def test_a_body_that_cannot_be_masked_is_left_out_with_a_note(tmp_path: Path) -> None:
    messages = [
        new_message(0, body=b"no JSON: CANARY"),
        new_message(1, body=b"CANARY", sys_flag=compression_bits(BodyCodec.ZLIB)),
        new_message(2, body=JSON),
        new_message(3, body=b""),
    ]
    growing, result = write(tmp_path, messages, "body.name=null")
    rows = rows_of(growing)
    assert [row["body"] for row in rows[2:]] == [b'{"number":17,"name":null}', b""]
    assert [row["body"] for row in rows[:2]] == [b"", b""]
    assert [row["properties"].get(MASKED) for row in rows] == ["body", "body", None, None]
    assert list(result.notes) == ["2 bodies could not be masked and were left out (property COMMITLAKE_MASKED)"]
    assert traces(Path(growing.lake.root)) == []
    assert audited(growing) == ExitCode.OK


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("keys=null", [(JSON, {"TAGS": "CANARY", "mine": "CANARY"}), (b"text", {"KEYS": ""})]),
        ("tags=null", [(JSON, {"KEYS": "CANARY k2", "mine": "CANARY"}), (b"text", {})]),
        ("property.mine=null", [(JSON, {"KEYS": "CANARY k2", "TAGS": "CANARY"}), (b"text", {})]),
        ("body=text:gone", [(b"gone", {"KEYS": "CANARY k2", "TAGS": "CANARY", "mine": "CANARY"}), (b"gone", {})]),
        ("body.name=null", None),  # the second message is not JSON
    ],
)
def test_each_message_of_an_inner_batch_is_masked(
    tmp_path: Path, rule: str, expected: list[tuple[bytes, dict[str, str]]] | None
) -> None:
    first = serialize_properties([("KEYS", "CANARY k2"), ("TAGS", "CANARY"), ("mine", "CANARY")])
    body = serialize_batch([BatchItem(1, JSON, first), BatchItem(2, b"text", b"")])
    properties = (("WAIT", "true"), ("INNER_BASE", "0"), ("INNER_NUM", "2"))
    growing, _ = write(tmp_path, [new_message(0, body=body, sys_flag=INNER_BATCH, properties=properties)], rule)
    (row,) = rows_of(growing)
    found = [(item.body, dict(parse_properties(item.properties))) for item in parse_batch(row["body"])]
    assert found == [(text, {name: value for name, value in own.items() if value}) for text, own in expected or ()]
    assert row["body_crc"] == body_crc(row["body"])
    assert audited(growing) == ExitCode.OK


def test_bodies_of_traces_are_left_out_if_keys_are_masked(tmp_path: Path) -> None:
    trace = new_message(0, topic="RMQ_SYS_TRACE_TOPIC", body=b"Pub\x01CANARY\x02")
    other = new_message(1, body=b"no trace")
    growing, result = write(tmp_path, [trace, other], "keys=null")
    assert [row["body"] for row in rows_of(growing)] == [b"", b"no trace"]
    assert len(result.notes) == 1


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ("keys=null",)),
        (("keys=null",), ()),
        (("keys=null",), ("tags=null",)),
        (("keys=null",), ("keys=null",) * 2),
    ],
)
def test_other_rules_than_those_of_the_lake_are_refused(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    growing, _ = write(tmp_path, [shop_message(0)], *before)
    growing.write([shop_message(1)])
    with pytest.raises(CommitLakeError, match="archived with") as refused:
        archive(growing, *after)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert len(rows_of(growing)) == 1


def test_another_key_than_that_of_the_lake_is_refused(tmp_path: Path) -> None:
    growing, _ = write(tmp_path, [shop_message(0)], "keys=hash")
    growing.write([shop_message(1)])
    masks = replace(masks_of("keys=hash"), key=b"another")
    with pytest.raises(CommitLakeError, match="the key in COMMITLAKE_MASK_KEY is not the one") as refused:
        run_archive(HERE, Config(str(growing.store), growing.lake, judge=judge_nothing, masks=masks))
    assert refused.value.exit_code is ExitCode.REFUSED


@pytest.mark.parametrize(
    "rule", ["property.KEYS=null", "property.TAGS=hash", "property.REAL_TOPIC=null", "nothing=null"]
)
def test_rules_of_properties_that_columns_follow_from_are_refused(rule: str) -> None:
    with pytest.raises(UsageError, match="mask"):
        parse_archive_masks([rule], ENVIRONMENT)


def test_a_hash_needs_a_key() -> None:
    with pytest.raises(UsageError, match="rule hash need a key: set COMMITLAKE_MASK_KEY"):
        parse_archive_masks(["keys=hash"], {})


@pytest.mark.parametrize("remembered", ["", "[]", "{", '{"rules":3}'])
def test_rules_that_cannot_be_read_are_an_error(remembered: str) -> None:
    with pytest.raises(UsageError, match="masks cannot be read"):
        parse_lake_masks(remembered, ENVIRONMENT)


def test_the_rules_stored_in_a_lake_do_not_contain_the_key() -> None:
    text = masks_of("keys=hash", "body.a.b=text:x=y", "property.a.b=truncate:3").serialize_rules()
    assert "a key" not in text
    again = parse_lake_masks(text, ENVIRONMENT)
    assert again is not None
    assert again.serialize_rules() == text
