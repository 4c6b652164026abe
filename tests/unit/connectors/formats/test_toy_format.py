"""A format is one object: a toy that one line registers is found, read, planned, verified and rebuilt."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from commitlake.connectors.formats import registry
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.snapshots import LogTailKind, StoreRange, plan_splits, take_snapshot
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.jobs.arguments.store_queues import queue_ids_by_topic
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.toy_format import ENTRY, FILE_SIZE, FORMAT, QUEUES, serialize

SIZE = 4096
TOPICS = ("orders", "mail", "orders", "orders", "mail")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FORMATS", dict(registry._FORMATS))
    registry.register(FORMAT)


def records() -> list[bytes]:
    """Return five records of two topics."""
    found: list[bytes] = []
    for place, topic in enumerate(TOPICS):
        number = TOPICS[:place].count(topic)
        found.append(serialize(topic, b"body %d" % place, sum(map(len, found)), number, time=1000 + place))
    return found


def write(root: Path, log: bytes) -> Store:
    """Write a store with a log, its queues and its checkpoint."""
    (root / "toylog").mkdir(parents=True)
    (root / "toylog" / segment_name(0)).write_bytes(log.ljust(SIZE, b"\0"))
    queues: dict[str, bytes] = {}
    offset = 0
    for topic, record in zip(TOPICS, records(), strict=True):
        queues[topic] = queues.get(topic, b"") + ENTRY.pack(offset, len(record))
        offset += len(record)
    for topic, entries in queues.items():
        folder = root / "toyqueue" / topic / "0"
        folder.mkdir(parents=True)
        (folder / segment_name(0)).write_bytes(entries.ljust(FILE_SIZE, b"\0"))
    (root / "checkpoint").write_bytes(offset.to_bytes(8))
    (found,) = find_stores(str(root), "a", formats=all_formats())
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write(tmp_path / "store", b"".join(records()))


def codes(store: Store) -> set[str]:
    """Return the classes of verify's findings."""
    (report,) = verify_stores([store], VerifyOptions())
    return report.findings.codes


def test_a_store_is_recognised_by_its_folder(store: Store) -> None:
    assert store.format is FORMAT
    assert pickle.loads(pickle.dumps(store)).format is FORMAT
    assert (
        all_formats().select_by_name("toy")
        == all_formats().select_by_name("toylog")
        == all_formats().select_only(FORMAT)
    )
    assert registry.format_of_id("toy:1") is FORMAT
    assert queue_ids_by_topic(store) == {"mail": {0}, "orders": {0}}


def test_records_are_read_by_the_rules(store: Store) -> None:
    rows = [store.format.record_rules.row_of(found.message, "a") for found in walk_store(store, SIZE) if found.message]
    assert [row["topic"] for row in rows] == list(TOPICS)


def test_a_log_is_planned(store: Store) -> None:
    end = sum(map(len, records()))
    found = take_snapshot([store]).ranges["a"]
    assert found == StoreRange(0, end, LogTailKind.UNWRITTEN, 0, end - len(records()[-1]))
    splits = plan_splits(store, found, 64)
    assert [split.start for split in splits] == [0, *(split.end for split in splits[:-1])]
    assert splits[-1].end == end
    assert len(splits) > 1


def test_a_torn_end_is_not_part_of_the_plan(tmp_path: Path) -> None:
    log = b"".join(records())
    store = write(tmp_path / "store", log + serialize("orders", b"torn", len(log), 3)[:10])
    found = take_snapshot([store]).ranges["a"]
    assert (found.end, found.tail) == (len(log), LogTailKind.TORN)


def test_a_sound_store_has_no_findings(store: Store) -> None:
    assert codes(store) == set()


def test_a_damaged_record_is_a_finding(tmp_path: Path) -> None:
    log = records()
    log[1] = log[1].replace(b"TY", b"TX")
    assert "log_bad_magic" in codes(write(tmp_path / "store", b"".join(log)))


def test_a_wrong_entry_is_a_finding(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "store" / "toyqueue" / "mail" / "0" / segment_name(0)
    path.write_bytes(ENTRY.pack(1, 2) + path.read_bytes()[ENTRY.size :])
    assert "queue_wrong_offset" in codes(store)


def test_a_checkpoint_that_is_ahead_is_a_finding(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store" / "checkpoint").write_bytes((1 << 20).to_bytes(8))
    assert codes(store) == {"checkpoint_ahead"}


def test_queues_and_checkpoint_are_rebuilt(store: Store, tmp_path: Path) -> None:
    rebuilt = rebuild_store(store, tmp_path / "out", RequestedSettings())
    assert (rebuilt.totals.records, rebuilt.queues) == (5, 2)
    for name in ("checkpoint", *(f"{QUEUES.folder}/{topic}/0/{segment_name(0)}" for topic in ("mail", "orders"))):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "store" / name).read_bytes()
