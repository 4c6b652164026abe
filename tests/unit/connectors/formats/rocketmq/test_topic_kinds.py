"""Tests of the rule by which a store may have light queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.formats.rocketmq.topic_kinds import may_have_light_queues


@pytest.mark.parametrize(
    ("folders", "files", "expected"),
    [
        ((), (), True),  # only the log can show that there were some
        (("consumequeue/orders",), (), False),
        (("batchconsumequeue/orders",), (), False),
        (("consumequeue/orders",), ("config/consumerOffset.json",), False),
        (("consumequeue/orders", "consumequeue/%LMQ%a"), (), True),
        (("consumequeue/orders",), ("config/lmqConsumerOffset.json",), True),
        (("consumequeue/orders",), ("config/lmqConsumerOffset.json.bak",), True),
    ],
)
def test_light_queues_need_their_folder_or_their_offsets(
    folders: tuple[str, ...], files: tuple[str, ...], expected: bool, tmp_path: Path
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert may_have_light_queues(tmp_path) is expected
