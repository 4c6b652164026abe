"""The columns `origin_topic` and `producer_group` of CommitLog records."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.reading.options import Mode
from tests.support.batches import log_of, rows_of, splits_of
from tests.support.logs import new_message
from tests.support.origins import ORIGINS


def test_records_name_the_topics_that_their_messages_were_sent_to(tmp_path: Path) -> None:
    sent = [new_message(topic=topic, properties=tuple(properties.items())) for topic, properties, _ in ORIGINS]
    rows = rows_of(splits_of(tmp_path, log_of(sent)), Mode.FAILFAST, "topic", "origin_topic")
    assert rows == [{"topic": topic, "origin_topic": expected} for topic, _, expected in ORIGINS]


@pytest.mark.parametrize("encoded", [False, True])
def test_producer_groups_are_those_of_the_records(tmp_path: Path, encoded: bool) -> None:
    groups = ["shop", None, "shop", "支付", None, "shop"]
    sent = [new_message(properties=(("A", "b"), *((("PGROUP", name),) if name else ()))) for name in groups]
    rows = rows_of(splits_of(tmp_path, log_of(sent)), Mode.FAILFAST, "producer_group", encoded=encoded)
    assert [row["producer_group"] for row in rows] == groups


def test_origin_and_group_are_decoded_from_properties_that_are_not_utf8(tmp_path: Path) -> None:
    sent = new_message(topic="%RETRY%g", properties=(("RETRY_TOPIC", "XYders"), ("PGROUP", "shop")))
    data = log_of([sent]).replace(b"XYders", b"\xff\xfeders")
    (row,) = rows_of(splits_of(tmp_path, data), Mode.PERMISSIVE, "origin_topic", "producer_group", "_corrupt_record")
    assert (row["origin_topic"], row["producer_group"]) == ("\ufffd\ufffdders", "shop")
    assert row["_corrupt_record"] is not None
