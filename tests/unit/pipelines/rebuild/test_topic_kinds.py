"""Topics get BatchConsumeQueues by topics.json, the folders and the offsets in the log, not by a flag."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from commitlake.pipelines.rebuild import run
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, parse_entry
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.remoting.fastjson import parse_fastjson
from tests.support.logs import new_message
from tests.support.numbered_logs import write_numbered
from tests.support.rebuilt_stores import Rebuild, files_of


def forged_batch(number: int, topic: str = "orders") -> NewMessage:
    """Return a record with the flag of a batch of three that takes one offset in its queue."""
    properties = (("INNER_NUM", "3"), ("INNER_BASE", str(number)), ("TAGS", "TagA"))
    return new_message(number, topic, queue_id=2, sys_flag=INNER_BATCH, properties=properties)


def write_topics(root: Path, **queue_types: str) -> None:
    """Write a topics.json with topics and their `queue.type`."""
    table = {topic: {"topicName": topic, "attributes": {"queue.type": each}} for topic, each in queue_types.items()}
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def contradict_folder(root: Path) -> None:
    """Write a topics.json with another kind than a folder."""
    write_topics(root, orders="SimpleCQ")
    (root / "batchconsumequeue" / "orders" / "2").mkdir(parents=True)


KINDS: dict[str, Callable[[Path], object]] = {
    "topics.json says so": lambda root: write_topics(root, orders="SimpleCQ"),
    "topics.json says so, against a folder": contradict_folder,
    "a folder says so": lambda root: (root / "consumequeue" / "orders" / "2").mkdir(parents=True),
    "the numbers show it": Path.exists,
}


@pytest.mark.parametrize("partition_bytes", [1 << 27, 300])
@pytest.mark.parametrize("why", KINDS)
def test_a_forged_batch_does_not_change_the_queues_of_a_simple_topic(
    rebuild: Rebuild, tmp_path: Path, why: str, partition_bytes: int
) -> None:
    single = new_message(queue_id=2)
    numbered = [(single, 0), (forged_batch(1), 1), (forged_batch(2), 2), (single, 3)]
    root = write_numbered(tmp_path / "forged", numbered)
    KINDS[why](root)
    rebuilt = rebuild(root, partition_bytes=partition_bytes)
    assert not (rebuilt.out / "batchconsumequeue").exists()
    (path,) = (rebuilt.out / "consumequeue" / "orders" / "2").iterdir()
    data = path.read_bytes()
    assert [parse_entry(data, ENTRY.size * place).size > 0 for place in range(5)] == [True] * 4 + [False]
    table = parse_fastjson((rebuilt.out / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["orders"]["attributes"].get("queue.type") != "BatchCQ"


@pytest.mark.parametrize("topic", ["%RETRY%group", "%LMQ%light", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_a_forged_batch_does_not_change_queues_that_are_never_of_batches(
    rebuild: Rebuild, tmp_path: Path, topic: str
) -> None:
    root = write_numbered(tmp_path / "forged", [(forged_batch(0, topic), 0)])
    rebuilt = rebuild(root)
    assert not (rebuilt.out / "batchconsumequeue").exists()
    assert (rebuilt.out / "consumequeue" / topic / "2").is_dir()


@pytest.mark.parametrize("where", ["topics.json", "folder"])
def test_single_messages_of_a_topic_of_batches_are_in_its_queues(rebuild: Rebuild, tmp_path: Path, where: str) -> None:
    root = write_numbered(tmp_path / "singles", [(new_message(queue_id=0), 0), (new_message(queue_id=0), 1)])
    if where == "topics.json":
        write_topics(root, orders="BatchCQ")
    else:
        (root / "batchconsumequeue" / "orders" / "0").mkdir(parents=True)
    rebuilt = rebuild(root)
    assert not (rebuilt.out / "consumequeue").exists()
    assert (rebuilt.out / "batchconsumequeue" / "orders" / "0").is_dir()
    table = parse_fastjson((rebuilt.out / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["orders"]["attributes"] == {"queue.type": "BatchCQ"}


@pytest.mark.parametrize("kept", [slice(0), slice(3), slice(None)])
def test_a_rebuild_interrupted_after_reading_batches_is_continued(
    rebuild: Rebuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: slice
) -> None:
    batches = [(replace(forged_batch(number), queue_id=number % 2), number // 2 * 3) for number in range(8)]
    root = write_numbered(tmp_path / "batches", batches)
    expected = rebuild(root, tmp_path / "whole", partition_bytes=300)
    with monkeypatch.context() as patched:
        patched.setattr(run, "_run_second_pass", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rebuild(root, partition_bytes=300)
    parts = sorted((tmp_path / "out" / ".rebuild" / "parts").iterdir())
    assert len(parts) > 3
    for part in set(parts) - set(parts[kept]):
        part.unlink()
    rebuilt = rebuild(root, partition_bytes=300)
    assert files_of(rebuilt.out) == files_of(expected.out)
    assert not (rebuilt.out / "consumequeue").exists()
