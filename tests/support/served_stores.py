"""Comparison of a store's indexes with a real broker's, and a check that a real broker serves all messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS, parse_delay_levels
from tests.servers.java_programs import Row, consume_all, look_up
from tests.servers.recording import RECORDING_OPTIONS
from tests.servers.rocketmq import RocketMQ

LEVELS = parse_delay_levels(RECORDING_OPTIONS.message_delay_level or DEFAULT_DELAY_LEVELS)
_LOOK_UPS = 40


def assert_same(expected: Path, found: Path) -> None:
    """Compare queues by name, and index files by order."""
    for kind in ("consumequeue", "batchconsumequeue"):
        theirs, ours = files_of(expected / kind), files_of(found / kind)
        assert sorted(ours) == sorted(theirs)
        assert [name for name in theirs if theirs[name] != ours[name]] == []
    assert list(files_of(found / "index").values()) == list(files_of(expected / "index").values())


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def business(rows: Iterable[Row]) -> list[Row]:
    """Return the records in topics that a producer created."""
    return [row for row in rows if row["topic"].startswith("Every")]


def assert_serves(servers: RocketMQ, rows: list[Row]) -> list[Row]:
    """Check that a consumer receives every message, also by key and by id, and return the messages of these topics."""
    wanted = {row["physical_offset"]: row for row in rows}
    consumed = {row["physical_offset"]: row for row in consume_all(servers, *sorted({row["topic"] for row in rows}))}
    assert [offset for offset in wanted if offset not in consumed] == []
    for offset, row in wanted.items():
        assert (consumed[offset]["keys"], consumed[offset]["tags"]) == (row["keys"], row["tags"])
        assert (consumed[offset]["topic"], consumed[offset]["queue_id"]) == (row["topic"], row["queue_id"])
    keyed = [(row, key) for row in rows for key in row["keys"] or ()]
    keyed = keyed[:: max(1, len(keyed) // _LOOK_UPS)]
    by_id = rows[:: max(1, len(rows) // _LOOK_UPS)]
    answers = look_up(
        servers,
        *(("key", row["topic"], key) for row, key in keyed),
        *(("id", row["topic"], row["msg_id"]) for row in by_id),
    )
    found = {(row["verb"], row["value"], row["physical_offset"]) for row in answers}
    assert [key for row, key in keyed if ("key", key, row["physical_offset"]) not in found] == []
    assert [row for row in by_id if ("id", row["msg_id"], row["physical_offset"]) not in found] == []
    return list(consumed.values())


def ipv4(rows: list[Row]) -> list[Row]:
    """Return records whose ids contain the address at which the broker listens now."""
    return [row for row in rows if row["store_host"].startswith("127.0.0.1")]
