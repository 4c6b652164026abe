"""Rebuilt files equal those of the plain rules, byte for byte."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.rebuild.command import rebuild_summary
from commitlake.pipelines.rebuild import run
from commitlake.pipelines.rebuild.index_building import index_file_name
from commitlake.pipelines.rebuild.run import RebuildResult
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import ENTRY as BATCH_ENTRY
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BatchQueueEntry as BatchEntry
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import parse_entry as parse_batch_entry
from commitlake.schemas.layouts.rocketmq.checkpoint import parse_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, PRE_BLANK, parse_entry
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC
from commitlake.schemas.remoting.fastjson import parse_fastjson
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, write_indexed_store
from tests.support.logs import START_MS, closed_segment, new_message, open_segment, records, write_store
from tests.support.numbered_logs import LARGE, write_numbered

Rebuild = Callable[..., RebuildResult]
Built = Callable[..., Path]
Compare = Callable[[Path, Path], None]

SIZES = RequestedSettings(
    None, OPTIONS.consume_queue_file_size_bytes, OPTIONS.index_slots, OPTIONS.index_entries, index_tags=True
)
ODD_PROPERTIES: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("TAGS", "TagA"), ("TAGS", "TagB")),
    (("TAGS", "订单"), ("KEYS", "鍵 ключ 😀"), ("UNIQ_KEY", "é")),
    (("KEYS", "  a   b "), ("UNIQ_KEY", "0" * 32), ("UNIQ_KEY", "1" * 32)),
    (("TAGS", "polygenelubricants"), ("KEYS", "polygenelubricants")),
    (("KEYS", "k " * 500), ("DELAY", "3")),
    (("DELAY", "+3"), ("TAGS", "T")),
    (("DELAY", "99"), ("TAGS", "T")),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, queue files and index files."""
    return write_indexed_store(tmp_path_factory.mktemp("indexed"))


@pytest.mark.parametrize(("partition", "threads"), [(1 << 30, 1), (5000, 1), (5000, 3)])
def test_rebuilt_files_equal_the_originals(
    store: Path, rebuild: Rebuild, same_files: Compare, tmp_path: Path, partition: int, threads: int
) -> None:
    rebuilt = rebuild(store, wanted=RequestedSettings(), partition_bytes=partition, runner=ThreadRunner(threads))
    same_files(store, rebuilt.out)
    assert rebuilt.totals.records == rebuilt.entries == 600
    assert rebuilt.index_files == len(list((store / "index").iterdir())) > 2
    assert (rebuilt.skipped, rebuilt.shifted, rebuilt.totals.bad_ranges) == (0, 0, 0)
    assert sorted(path.name for path in rebuilt.out.iterdir()) == ["checkpoint", "config", "consumequeue", "index"]


def test_the_store_is_not_changed(store: Path, rebuild: Rebuild) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    rebuild(store)
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_unusual_records_are_entered_as_by_the_plain_rules(
    rebuild: Rebuild, built_by_plain_rules: Built, same_files: Compare, tmp_path: Path
) -> None:
    odd = [
        new_message(number, topic=topic, properties=properties, sys_flag=int(kind), queue_id=0)
        for number, (topic, properties, kind) in enumerate(
            (topic, properties, kind)
            for topic in ("orders", SCHEDULE_TOPIC, "%RETRY%" + "g" * 140)
            for properties in ODD_PROPERTIES
            for kind in TransactionType
        )
    ]
    counts: Counter[str] = Counter()
    numbered = []
    for message in odd:  # half and rolled back ones have the number 0, and take none
        is_queued = message.sys_flag in (TransactionType.NOT, TransactionType.COMMIT)
        numbered.append((message, counts[message.topic] if is_queued else 0))
        counts[message.topic] += is_queued
    root = write_numbered(tmp_path / "odd", numbered)
    same_files(built_by_plain_rules(root, LARGE), rebuild(root, partition_bytes=3000).out)


@pytest.mark.parametrize("gone", [1, 3])
def test_without_the_logs_head_queues_begin_with_filler(
    store: Path, rebuild: Rebuild, built_by_plain_rules: Built, same_files: Compare, tmp_path: Path, gone: int
) -> None:
    root = tmp_path / "headless"
    shutil.copytree(store / "commitlog", root / "commitlog")
    for path in sorted((root / "commitlog").iterdir())[:gone]:
        path.unlink()
    rebuilt = rebuild(root)
    same_files(built_by_plain_rules(root), rebuilt.out)
    first = min((rebuilt.out / "consumequeue" / "topic-1" / "0").iterdir())
    assert (int(first.name) > 0) == (gone == 3)
    assert parse_entry(first.read_bytes()) == PRE_BLANK


def test_a_gap_in_a_queue_is_closed_as_by_brokers(rebuild: Rebuild, tmp_path: Path) -> None:
    numbers = [5, 6, 9, 10, 0, 11, 3, 40]  # 0 is always appended, others below the end never are
    messages = [(new_message(place, queue_id=0), number) for place, number in enumerate(numbers)]
    root = write_numbered(tmp_path / "gaps", messages)
    rebuilt = rebuild(root)
    entries = (rebuilt.out / "consumequeue" / "orders" / "0" / f"{0:020d}").read_bytes()
    written = [ENTRY.unpack(entries, ENTRY.size * place) for place in range(16)]
    assert written[:5] == [tuple(PRE_BLANK)] * 5
    assert [offset >= 0 and size > 0 for offset, size, _ in written[5:]] == [True] * 7 + [False] * 4
    assert (rebuilt.skipped, rebuilt.shifted, rebuilt.shifted_queues) == (1, 4, ("orders/0",))


def test_a_continued_run_counts_the_queues_that_were_finished_before(
    rebuild: Rebuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [(new_message(place, queue_id=0), number) for place, number in enumerate([5, 6, 9, 5])]
    root = write_numbered(tmp_path / "gaps", messages)

    def stop(*_: object, **__: object) -> None:
        raise StopIteration

    with monkeypatch.context() as patched:
        patched.setattr(run, "build_checkpoint", stop)
        with pytest.raises(StopIteration):
            rebuild(root)
    assert (tmp_path / "out" / "consumequeue" / "orders" / "0").is_dir()
    rebuilt = rebuild(root)
    assert (rebuilt.skipped, rebuilt.shifted, rebuilt.shifted_queues) == (1, 1, ("orders/0",))
    assert not (rebuilt.out / ".rebuild").exists()


def test_a_queue_without_its_head_begins_at_0_if_heads_are_closed(rebuild: Rebuild, tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "headless", [(new_message(place, queue_id=0), 5 + place) for place in range(3)])
    rebuilt = rebuild(root, wanted=replace(SIZES, close_heads=True))
    entries = (rebuilt.out / "consumequeue" / "orders" / "0" / f"{0:020d}").read_bytes()
    found = [ENTRY.unpack(entries, ENTRY.size * place) for place in range(4)]
    assert [size > 0 for _, size, _ in found] == [True, True, True, False]
    assert tuple(PRE_BLANK) not in found
    assert rebuilt.shifted == 3


@pytest.mark.parametrize("keys_of_last", [0, 1])
def test_a_full_index_file_is_followed_by_an_empty_one_if_records_follow(
    rebuild: Rebuild, built_by_plain_rules: Built, same_files: Compare, tmp_path: Path, keys_of_last: int
) -> None:
    room = OPTIONS.index_entries - 1
    keyed = [(new_message(number, queue_id=0, properties=(("KEYS", f"k{number}"),)), number) for number in range(room)]
    last = new_message(room, queue_id=0, properties=(("KEYS", "last"),) * keys_of_last)
    root = write_numbered(tmp_path / "full", [*keyed, (last, room)])
    rebuilt = rebuild(root)
    assert rebuilt.index_files == 2
    same_files(built_by_plain_rules(root, LARGE), rebuilt.out)
    assert rebuild(write_numbered(tmp_path / "just", keyed), tmp_path / "just-out").index_files == 1


def test_brokers_before_5_5_have_no_tags_in_the_index(store: Path, rebuild: Rebuild, tmp_path: Path) -> None:
    with_tags = rebuild(store)
    without = rebuild(store, tmp_path / "without", RequestedSettings(index_tags=False))
    assert with_tags.totals.keys - without.totals.keys == 600


def test_the_checkpoint_covers_the_whole_log(store: Path, rebuild: Rebuild) -> None:
    rebuilt = rebuild(store)
    checkpoint = parse_checkpoint((rebuilt.out / "checkpoint").read_bytes())
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == rebuilt.totals.last_time
    assert checkpoint.logics_physical_offset == rebuilt.totals.last_offset
    assert 0 < checkpoint.index_msg_timestamp <= checkpoint.physic_msg_timestamp


def test_topics_have_the_queues_of_their_records(store: Path, rebuild: Rebuild, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(store / "commitlog", bare / "commitlog")
    document = parse_fastjson((rebuild(bare).out / "config" / "topics.json").read_text())
    table = document["topicConfigTable"]
    assert {name: (entry["readQueueNums"], entry["perm"]) for name, entry in table.items()} == {
        "rare": (3, 6), "topic-0": (3, 6), "topic-1": (3, 6), "topic-2": (3, 6)
    }  # fmt: skip


def test_a_damaged_queue_id_makes_no_topic_of_millions_of_queues(rebuild: Rebuild, tmp_path: Path) -> None:
    sent = [(new_message(topic="order", queue_id=number % 3), number // 3) for number in range(12)]
    damaged = [(new_message(topic="order", queue_id=1 | 1 << 24), 4), (new_message(topic="order", queue_id=1000), 4)]
    rebuilt = rebuild(write_numbered(tmp_path / "flipped", sent + damaged))
    table = parse_fastjson((rebuilt.out / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["order"]["readQueueNums"] == 1001
    assert rebuilt.unlikely_queues == ("order/16777217",)
    assert (rebuilt.out / "consumequeue" / "order" / "16777217").is_dir()
    assert any("topics.json leaves them out: order/16777217" in line for line in rebuild_summary(rebuilt))


def test_a_topic_of_thousands_of_queues_keeps_them(rebuild: Rebuild, tmp_path: Path) -> None:
    sent = [(new_message(topic="wide", queue_id=8 * number), 0) for number in range(200)]
    rebuilt = rebuild(write_numbered(tmp_path / "wide", sent))
    table = parse_fastjson((rebuilt.out / "config" / "topics.json").read_text())["topicConfigTable"]
    assert (table["wide"]["readQueueNums"], rebuilt.unlikely_queues) == (8 * 199 + 1, ())


def test_existing_topics_of_topics_json_are_kept(store: Path, rebuild: Rebuild, tmp_path: Path) -> None:
    root = Path(shutil.copytree(store, tmp_path / "configured"))
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"rare":{"topicName":"rare","perm":4}}}')
    document = parse_fastjson((rebuild(root).out / "config" / "topics.json").read_text())
    assert document["topicConfigTable"]["rare"] == {"topicName": "rare", "perm": 4}
    assert set(document["topicConfigTable"]) == {"rare", "topic-0", "topic-1", "topic-2"}


@pytest.mark.parametrize("has_bak", [True, False])
def test_an_unreadable_topics_json_is_reported_and_its_backup_used(
    store: Path, rebuild: Rebuild, tmp_path: Path, caplog: pytest.LogCaptureFixture, has_bak: bool
) -> None:
    root = Path(shutil.copytree(store, tmp_path / "configured"))
    path, before = root / "config" / "topics.json", root / "config" / "topics.json.bak"
    path.parent.mkdir(exist_ok=True)
    before.unlink(missing_ok=True)
    if has_bak:
        before.write_text('{"topicConfigTable":{"silent":{"topicName":"silent"}}}')
    path.write_text('{"topicConfigTable":{')
    rebuilt = rebuild(root)
    table = parse_fastjson((rebuilt.out / "config" / "topics.json").read_text())["topicConfigTable"]
    assert ("silent" in table) == has_bak
    assert {"rare", "topic-0"} <= set(table)
    (told,) = [record.getMessage() for record in caplog.records]
    assert str(path) in told
    assert ("topics.json.bak" in told) == has_bak


def test_a_rebuild_of_one_topic_makes_only_its_queues(store: Path, rebuild: Rebuild) -> None:
    rebuilt = rebuild(store, wanted=RequestedSettings(topics=("rare", "unknown")))
    assert [path.name for path in rebuilt.out.iterdir()] == ["consumequeue"]
    for queue in ("0", "1", "2"):
        found = {path.name: path.read_bytes() for path in (rebuilt.out / "consumequeue" / "rare" / queue).iterdir()}
        expected = {path.name: path.read_bytes() for path in (store / "consumequeue" / "rare" / queue).iterdir()}
        assert found == expected


def test_a_record_that_is_in_a_light_queue_twice_is_entered_once(rebuild: Rebuild, tmp_path: Path) -> None:
    def message(numbers: str) -> NewMessage:
        several = (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%a"), ("INNER_MULTI_QUEUE_OFFSET", numbers))
        return new_message(queue_id=0, properties=several)

    root = write_numbered(tmp_path / "light", [(message("0,0"), 0), (message("1,1"), 1)])
    rebuilt = rebuild(root)
    data = (rebuilt.out / "consumequeue" / "%LMQ%a" / "0" / f"{0:020d}").read_bytes()
    offsets = [parse_entry(data, ENTRY.size * place).size > 0 for place in range(3)]
    assert offsets == [True, True, False]
    assert rebuilt.skipped == 0


def test_forged_names_of_light_queues_make_no_queues_in_a_store_without_such_queues(
    rebuild: Rebuild, tmp_path: Path
) -> None:
    lights = (("INNER_MULTI_DISPATCH", "%LMQ%a"), ("INNER_MULTI_QUEUE_OFFSET", "0"))
    root = write_numbered(tmp_path / "light", [(new_message(queue_id=0, properties=lights), 0)])
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    assert {path.name for path in (rebuild(root).out / "consumequeue").iterdir()} == {"orders"}


def test_inner_batches_are_entered_in_batch_queues(rebuild: Rebuild, tmp_path: Path) -> None:
    def batch(count: int) -> NewMessage:
        return new_message(queue_id=2, sys_flag=INNER_BATCH, properties=(("INNER_NUM", str(count)), ("TAGS", "TagA")))

    single = new_message(queue_id=2)
    root = write_numbered(tmp_path / "batches", [(batch(3), 0), (batch(5), 3), (single, 8)])
    rebuilt = rebuild(root)
    assert not (rebuilt.out / "consumequeue").exists()
    (path,) = (rebuilt.out / "batchconsumequeue" / "orders" / "2").iterdir()
    assert (path.name, path.stat().st_size) == (f"{0:020d}", 300_000 * BATCH_ENTRY.size)
    data = path.read_bytes()[: 4 * BATCH_ENTRY.size]
    first, second, third, fourth = (parse_batch_entry(data, BATCH_ENTRY.size * place) for place in range(4))
    assert (first.physical_offset, first.message_base_offset, first.batch_size, first.tags_code) == (0, 0, 3, 2598919)
    assert (second.message_base_offset, second.batch_size, second.compacted_offset) == (3, 5, -1)
    assert second.store_timestamp == START_MS + 1
    assert (third.message_base_offset, third.batch_size) == (8, 1)
    assert fourth == BatchEntry(0, 0, 0, 0, 0, 0, 0)
    document = parse_fastjson((rebuilt.out / "config" / "topics.json").read_text())
    assert document["topicConfigTable"]["orders"]["attributes"] == {"queue.type": "BatchCQ"}


@pytest.mark.parametrize("topic", ["..", "a/../../b", ".", "a\x00b", "a\nb"])
def test_no_topic_name_leaves_the_folder(rebuild: Rebuild, tmp_path: Path, topic: str) -> None:
    root = write_numbered(tmp_path / "forged", [(new_message(0, topic, queue_id=0), 0), (new_message(queue_id=0), 0)])
    rebuilt = rebuild(root)
    assert rebuilt.totals.refused == 1
    assert [str(path.relative_to(rebuilt.out)) for path in (rebuilt.out / "consumequeue").glob("*/*")] == [
        "consumequeue/orders/0"
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forged", "out"]


@pytest.mark.parametrize("number", [-1, 1 << 62, (1 << 63) - 1])
def test_a_forged_queue_offset_makes_no_huge_file(rebuild: Rebuild, tmp_path: Path, number: int) -> None:
    root = write_numbered(tmp_path / "forged", [(new_message(queue_id=0), number), (new_message(queue_id=0), 0)])
    rebuilt = rebuild(root)
    (path,) = (rebuilt.out / "consumequeue" / "orders" / "0").iterdir()
    assert path.name == f"{0:020d}"


def test_damage_is_counted_and_intact_records_are_entered(rebuild: Rebuild, tmp_path: Path) -> None:
    data = bytearray(closed_segment([new_message(number) for number in range(40)], SEGMENT_BYTES))
    broken = records([new_message(number) for number in range(40)])
    at = sum(map(len, broken[:7])) + 90
    data[at] ^= 1
    root = write_store(tmp_path / "damaged", [(0, bytes(data)), (SEGMENT_BYTES, open_segment([], SEGMENT_BYTES))])
    rebuilt = rebuild(root)
    assert (rebuilt.totals.bad_ranges, rebuilt.totals.bad_bytes) == (1, len(broken[7]))
    assert rebuilt.entries == 39


def test_names_of_index_files_sort_before_later_ones_in_every_time_zone() -> None:
    assert index_file_name(1_700_000_000_456) == "20231114101320456"  # UTC less 12 hours
    assert index_file_name(-1) == index_file_name(0) == "19700101120000000"
    assert len(index_file_name(1 << 62)) == 17
