"""Delivery times of delayed messages, where the broker has a messageDelayLevel of its own."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.rebuild.command import main as rebuild
from commitlake.jobs.verify.command import main as verify
from commitlake.pipelines.verify.findings import Findings
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import OPTIONS, Clock
from tests.support.remote_copies import COPY, serve_copies, ship_copy

LEVELS = "2s 7s 30s 40s"
PER_LEVEL = 5
CODE_AT = ENTRY.size - 8


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a stopped broker with four delay levels of its own, and messages in each."""
    root = tmp_path / "store"
    with MessageStore.open(root, replace(OPTIONS, message_delay_level=LEVELS), clock=Clock()) as opened:
        for number in range(4 * PER_LEVEL):
            opened.put(delayed(1 + number % 4))
    return root


def delayed(level: int) -> NewMessage:
    """Return a delayed message as it waits in the schedule topic."""
    properties = (("DELAY", str(level)), ("REAL_TOPIC", "orders"), ("REAL_QID", "0"))
    return NewMessage(SCHEDULE_TOPIC, b"body", 0, Host.of("127.0.0.1", 1), queue_id=level - 1, properties=properties)


def findings(root: Path, **options: object) -> Findings:
    """Return all findings of verify."""
    (report,) = verify_stores(find_stores(str(root), "a", formats=COMMITLOGS), VerifyOptions(**options))  # type: ignore[arg-type]
    return report.findings


def counts(root: Path, **options: object) -> dict[str, int]:
    """Return the number of findings of each class."""
    return dict(findings(root, **options).counts)


def queue_file(root: Path, level: int) -> Path:
    """Return the file of a level's schedule queue."""
    return root / "consumequeue" / SCHEDULE_TOPIC / str(level - 1) / segment_name(0)


def change_code(root: Path, level: int, number: int, by: int) -> None:
    """Add something to an entry's delivery time."""
    path = queue_file(root, level)
    data = bytearray(path.read_bytes())
    at = number * ENTRY.size + CODE_AT
    (code,) = struct.unpack_from(">q", data, at)
    struct.pack_into(">q", data, at, code + by)
    path.write_bytes(data)


def test_a_broker_with_its_own_delay_levels_has_no_damage(store: Path) -> None:
    assert counts(store) == {"delay_level_not_default": 4}
    assert verify([str(store), "--local", "--quiet"]) == ExitCode.OK


def test_the_delays_of_levels_are_read_from_the_store(store: Path) -> None:
    found = [each.found for each in findings(store).kept["delay_level_not_default"]]
    assert found == [f"level {number} waits {text}" for number, text in enumerate(("2 s", "7 s", "30 s", "40 s"), 1)]


def test_the_delays_of_levels_are_read_from_a_copy(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_copies(tmp_path / "remote", monkeypatch)
    ship_copy(store, tmp_path / "remote")
    (report,) = verify_stores(find_stores(COPY, "a", formats=COMMITLOGS), VerifyOptions())
    found = report.findings.kept["delay_level_not_default"]
    assert found == findings(store).kept["delay_level_not_default"]
    assert len(found) == 4


def test_other_levels_than_the_brokers_are_not_damage(store: Path) -> None:
    assert counts(store, delay_levels_ms=(1000, 7000, 30_000, 40_000)) == {"queue_other_delay": PER_LEVEL}


@pytest.mark.parametrize("bit", [0, 3, 12, 20, 40])
def test_a_flipped_bit_of_a_delivery_time_is_damage(store: Path, bit: int) -> None:
    change_code(store, 2, 3, 1 << bit)
    assert counts(store)["queue_wrong_tags"] == 1
    assert verify([str(store), "--local", "--quiet"]) == ExitCode.DAMAGE


def test_a_delivery_time_before_the_message_was_stored_is_damage(store: Path) -> None:
    change_code(store, 2, 3, -8000)
    assert counts(store)["queue_wrong_tags"] == 1


def test_settings_are_taken_from_a_broker_conf(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "a.conf"
    conf.write_text(f"brokerName=a\nmessageDelayLevel={LEVELS}\n")
    assert verify([str(store), "--local", "--quiet", "--broker-conf", str(conf)]) == ExitCode.OK
    change_code(store, 1, 0, 1)
    named = str(tmp_path / "{broker}.conf")
    arguments = [str(store), "--local", "--quiet", "--broker", "a", "--broker-conf", named]
    assert verify(arguments) == ExitCode.DAMAGE


def test_a_wrong_broker_conf_is_an_error(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=soon")
    assert verify([str(store), "--local", "--broker-conf", str(conf)]) == ExitCode.USAGE
    assert (
        "messageDelayLevel: expected delays such as '1s 5m 2h', separated by blanks, found 'soon'"
        in capsys.readouterr().err
    )


def test_a_rebuild_keeps_the_delivery_times_of_the_broker(store: Path) -> None:
    before = {path: path.read_bytes() for path in (store / "consumequeue").rglob("*") if path.is_file()}
    assert rebuild([str(store), "--in-place", "--local", "--quiet"]) == ExitCode.OK
    assert {path: path.read_bytes() for path in (store / "consumequeue").rglob("*") if path.is_file()} == before
    assert len(before) == 4


def test_a_rebuild_in_place_does_not_guess_delivery_times(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue_file(store, 3).unlink()
    assert rebuild([str(store), "--in-place", "--local"]) == ExitCode.USAGE
    message = "the delays of its levels 3, which 5 messages have, are not known; nothing was replaced"
    errors = capsys.readouterr().err
    assert message in errors
    assert "--broker-conf" in errors
    assert rebuild([str(store), "--in-place", "--local", "--delay-levels", LEVELS]) == ExitCode.OK
    assert counts(store) == {"delay_level_not_default": 4}


def test_a_rebuild_without_queues_names_the_assumed_delays(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for level in range(1, 5):
        queue_file(store, level).unlink()
    assert rebuild([str(store), "--out", str(tmp_path / "out"), "--local"]) == ExitCode.OK
    expected = "20 delayed messages of levels 1, 2, 3, 4 have delivery times by the default messageDelayLevel"
    assert expected in capsys.readouterr().err


def test_a_salvage_keeps_the_delivery_times_of_the_broker(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "clean"
    before = [queue_file(store, level).read_bytes() for level in range(1, 5)]
    assert rebuild([str(store), "--out", str(out), "--salvage", "--local", "--quiet"]) == ExitCode.OK
    assert [queue_file(out, level).read_bytes() for level in range(1, 5)] == before
