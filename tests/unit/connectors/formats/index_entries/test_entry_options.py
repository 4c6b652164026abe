"""The options of `consumequeue` and `indexfile`."""

from __future__ import annotations

import pytest

from commitlake.connectors.formats.index_entries.entry_options import (
    IndexContent,
    IndexFileOptions,
    QueueOptions,
)
from commitlake.connectors.reading.options import Mode
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.indexfile import Geometry, key_hash


def test_queue_options_narrow_topics_queues_and_offsets() -> None:
    options = QueueOptions.parse(
        {"PATH": "/store", "topics": "a, b", "queueIds": "0,3", "startingOffset": "10", "mode": "permissive"}
    )
    filters = options.to_read_filters
    assert (filters.topics, filters.queue_ids) == (frozenset({"a", "b"}), frozenset({0, 3}))
    assert (filters.min_offset, filters.end_offset, options.mode) == (10, None, Mode.PERMISSIVE)


def test_index_options_hash_the_keys_of_each_topic() -> None:
    options = IndexFileOptions.parse({"path": "/store", "topics": "a,b", "keys": "k"})
    assert options.key_hashes == frozenset({key_hash("a", "k"), key_hash("b", "k")})
    assert options.content is IndexContent.ENTRIES


def test_index_options_take_the_brokers_geometry() -> None:
    options = IndexFileOptions.parse({"path": "/store", "indexSlots": "7", "indexEntries": "9"})
    assert options.index_file_geometry == Geometry(7, 9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'path' is missing"),
        ({"path": "/s", "topcs": "a"}, "did you mean 'topics'"),
        ({"path": "/s", "keys": "a"}, "there is no option 'keys'"),
        ({"path": "/s", "mode": "LAX"}, "option mode"),
        ({"path": "/s", "queueIds": "one"}, "option queueIds: expected whole numbers"),
        ({"path": "/s", "maxPartitionBytes": "0"}, "option maxPartitionBytes"),
    ],
)
def test_wrong_queue_options_are_errors(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QueueOptions.parse(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keys": "a"}, "topics and keys: expected both or none"),
        ({"topics": "a"}, "topics and keys: expected both or none"),
        ({"topics": "a", "keys": "k", "content": "slots"}, "option keys needs content=entries"),
        ({"indexSlots": "5"}, "expected both or none"),
        ({"indexSlots": "0", "indexEntries": "5"}, "each at least 1"),
        ({"indexSlots": "5", "indexEntries": "2000000000"}, "an IndexFile of at most 2147483647 bytes"),
        ({"content": "files"}, "option content: expected one of entries, slots, headers"),
    ],
)
def test_wrong_index_options_are_errors(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        IndexFileOptions.parse({"path": "/s", **given})
