"""The lag of a store, counted by the entries of its queues, and from its log."""

from __future__ import annotations

import datetime
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading import batches
from commitlake.connectors.reading.splits import ListedSplit, Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.lag.command import main
from commitlake.pipelines.lag import store_messages
from commitlake.pipelines.lag.group_lag import NO_OFFSET
from commitlake.pipelines.lag.store_lag import LagAnswer, Overrides, lag_of_store
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.schemas.selection import ALL_MESSAGES, Selection
from tests.support.indexed_stores import OPTIONS, RARE, Clock, message, without_seeks, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.lag_places import WRITTEN, lag_rows, put_offsets, stored

TAGGED = GroupTopic("tagged", RARE)
FILTERED = Overrides({TAGGED: SubscriptionFilter.of("TAG", "tag-0")})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of some segments, and groups that are anywhere in its queues."""
    root = write_indexed_store(tmp_path / "broker-a")
    chance = random.Random(1)
    topics = [RARE, *(f"topic-{number}" for number in range(3))]
    groups = ["ahead", "behind", "tagged"]
    table = {
        f"{topic}@{group}": {queue: chance.randrange(80) for queue in range(3)} for topic in topics for group in groups
    }
    put_offsets(root, "consumerOffset.json", table)
    return root


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Split]:
    """The parts of the log that are read."""
    found: list[Split] = []
    read_split = batches.read_split

    def note(split: Split, *arguments: object) -> object:
        found.append(split)
        return read_split(split, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store_messages, "read_split", note)
    return found


def lag(root: Path, wanted: Selection = ALL_MESSAGES, given: Overrides | None = None) -> LagAnswer:
    (store,) = find_stores(str(root), None, formats=COMMITLOGS)
    return lag_of_store(store, WRITTEN + datetime.timedelta(hours=1), wanted, given)


def from_log(root: Path, monkeypatch: pytest.MonkeyPatch, given: Overrides | None = None) -> LagAnswer:
    """Return the lag, counted without any index."""
    with monkeypatch.context() as patched:
        patched.setattr(store_messages.StoreMessages.__init__, "__kwdefaults__", {"use_indexes": False})
        return lag(root, given=given)


def test_lag_of_groups_without_a_filter_is_counted_from_entries_alone(
    root: Path, read: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lag(root)
    assert read == []
    assert found == from_log(root, monkeypatch)
    assert read
    assert sum(row.messages.largest for row in found.rows) > 100


def test_ranges_that_no_queue_claims_are_read_from_the_log(
    root: Path, read: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the records of a topic with BatchConsumeQueues are."""
    without_seeks(monkeypatch)
    shutil.rmtree(root / "consumequeue" / "topic-0")
    found = lag(root)
    assert read
    assert not all(split.start == split.base_offset for split in read)
    assert found == from_log(root, monkeypatch)


def test_a_filter_reads_the_records_of_its_topic_only(
    root: Path, read: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_seeks(monkeypatch)
    found = lag(root, given=FILTERED)
    assert all(isinstance(split, ListedSplit) for split in read)
    assert sum(split.record_count for split in read if isinstance(split, ListedSplit)) == 30
    assert found == from_log(root, monkeypatch, FILTERED)


def test_no_split_is_read_twice(root: Path, read: list[Split], monkeypatch: pytest.MonkeyPatch) -> None:
    from_log(root, monkeypatch, FILTERED)
    assert len(read) == len({split.start for split in read}) > 5


def test_segments_with_messages_after_the_offsets_are_scanned(
    root: Path, read: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.lag_places.WRITTEN", WRITTEN - datetime.timedelta(minutes=112))
    put_offsets(root, "consumerOffset.json", {"topic-1@behind": {0: 0, 1: 0, 2: 0}})
    found = lag(root)
    assert read
    assert found == from_log(root, monkeypatch)
    assert 0 < sum(row.messages.largest for row in found.rows) < 190  # 2 of 10 minutes are later


def test_records_missing_from_the_queues_are_scanned(
    root: Path, read: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lag(root)
    assert read == []
    sorted((root / "consumequeue" / "topic-1" / "0").iterdir())[1].unlink()
    assert lag(root) == expected
    assert read


def test_entries_that_do_not_match_the_log_are_ignored(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = lag(root)
    queues = root / "consumequeue"
    (queues / "topic-1" / "0").rename(root / "moved")
    (queues / "topic-2" / "0").rename(queues / "topic-1" / "0")
    (root / "moved").rename(queues / "topic-2" / "0")
    assert lag(root) == expected
    assert "but the log has" in caplog.text


@pytest.fixture
def made_again(tmp_path: Path) -> Path:
    """A store whose topic `topic-1` was deleted after 300 messages of all topics, and made again."""
    root, chance = tmp_path / "broker-a", random.Random(1)
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        for number in range(600):
            if number == 300:
                store.delete_queues("topic-1")
            store.put(message(number, chance))
    put_offsets(root, "consumerOffset.json", {"topic-1@old": {0: 50}, "topic-1@new": {0: 3}, "topic-2@new": {0: 3}})
    return root


@pytest.mark.parametrize("place", ["store", "store without indexes", "lake"])
def test_messages_before_the_recreation_of_a_topic_are_not_counted(
    made_again: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if place == "lake":
        arguments = ["--lake", str(tmp_path / "lake")]
        assert archive(["--store", str(made_again), *arguments, "--local", "--quiet", "--no-quality"]) == 0
    else:
        arguments = ["--store", str(made_again)]
        kept = {"use_indexes": place == "store"}
        monkeypatch.setattr(store_messages.StoreMessages.__init__, "__kwdefaults__", kept)
    found = lag_rows(capsys, *arguments)
    rows = {(row["topic"], row["group"]): row for row in found if row["queue_id"] == 0}
    new, old, other = rows["topic-1", "new"], rows["topic-1", "old"], rows["topic-2", "new"]
    sent = [number for number in range(300, 600) if number % 3 == 1 and number % 20 and number // 20 % 3 == 0]
    assert (new["end"], new["messages_max"]) == (len(sent), len(sent) - 3)
    assert "were stored before do not count: the topic was deleted and created again" in new["notes"][-1]
    assert (old["messages_max"], old["verdict"]) == (0, "ahead")
    assert other["messages_max"] == other["end"] - 3 > len(sent)
    elsewhere = [row for row in found if row["topic"] == "topic-1" and row["queue_id"]]
    assert len(elsewhere) == 4
    assert all(0 < row["messages_max"] == row["end"] < 40 and NO_OFFSET in row["notes"] for row in elsewhere)


@pytest.mark.parametrize("place", ["store", "store without indexes", "lake"])
def test_queues_that_a_recreated_topic_lacks_have_no_lag(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "broker-a"
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        # Only the store's folders can tell that queue 2 was deleted: its messages come after the last of queue 0.
        for queue_id in (0, 1, 0, 1, 0, 2, 2):
            store.put(replace(stored("orders", 1), queue_id=queue_id))
        store.delete_queues("orders")
        for _ in range(3):
            store.put(stored("orders", 1))
    put_offsets(root, "consumerOffset.json", {"orders@billing": {0: 1, 1: 1, 2: 1}})
    arguments = ["--store", str(root)]
    if place == "lake":
        arguments = ["--lake", str(tmp_path / "lake")]
        assert archive(["--store", str(root), *arguments, "--local", "--quiet", "--no-quality"]) == 0
    else:
        kept = {"use_indexes": place == "store"}
        monkeypatch.setattr(store_messages.StoreMessages.__init__, "__kwdefaults__", kept)
    found = {row["queue_id"]: (row["end"], row["messages_max"]) for row in lag_rows(capsys, *arguments)}
    assert found == {0: (3, 2), 1: (0, 0), 2: (0, 0) if place != "lake" else (2, 1)}


@pytest.mark.parametrize("place", ["store", "lake"])
def test_lag_of_a_jmq_store_is_counted(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_jmq_store(tmp_path / "jmq-a")
    arguments = [f"--{place}", str(root if place == "store" else tmp_path / "lake")]
    if place == "lake":
        assert archive(["--store", str(root), *arguments, "--local", "--quiet", "--no-quality"]) == 0
    found = lag_rows(capsys, *arguments)
    rows = {(row["group"], row["topic"]): row for row in found if NO_OFFSET not in row["notes"]}
    others = [row for row in found if NO_OFFSET in row["notes"]]
    assert {row["group"] for row in others} == {"billing", "shipping"}
    assert all(row["messages_min"] == 0 < row["messages_max"] == row["end"] for row in others)
    billing, shipping = rows["billing", "topic-1"], rows["shipping", RARE]
    assert (billing["offset_min"], shipping["offset_min"]) == (3, 1)
    assert billing["messages_max"] == billing["end"] - 3
    assert shipping["messages_max"] == shipping["end"] - 1
    assert 3 < billing["end"] < 600


def test_damaged_ranges_of_a_log_are_reported_with_exit_code_3(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--store", str(root), "--group", "tagged", "--filter", f"tagged@{RARE}=tag-0"]
    before = lag_rows(capsys, *asked)
    for segment in (root / "commitlog").iterdir():
        data = bytearray(segment.read_bytes())
        data[len(data) // 2 : len(data) * 3 // 4] = bytes([255]) * (len(data) * 3 // 4 - len(data) // 2)
        segment.write_bytes(data)
    main([*asked, "--output", "jsonl", "--all"])
    captured = capsys.readouterr()
    assert "damaged; messages there are not counted" in captured.err
    assert len(captured.out.splitlines()) == len(before)
    assert main([*asked, "--quiet"]) == 3
