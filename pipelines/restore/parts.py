"""Serializes hosts and topics, once for each distinct value of a batch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.numbers import parse_int32
from commitlake.schemas.layouts.rocketmq.commitlog import MAX_V1_TOPIC_LENGTH, TOPIC_LENGTH
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE, Host, serialize_host

REPLACED = "\ufffd"
"""Character in the table for bytes that are not UTF-8."""


class Topics(NamedTuple):
    """Serialized topics, each preceded by its length.

    Attributes:
        data: all topics, one after the other.
        starts: int64, where each topic begins.
        lengths: int64, its size in bytes, including the length; 0 for a topic that no record can have.
        magics: int64, magic number of records with this topic.
        replaced: bool, true if the topic may have had other bytes.
    """

    data: bytes
    starts: Array
    lengths: Array
    magics: Array
    replaced: Array


def stored_topics(names: Sequence[str | None]) -> Topics:
    """Serialize topics, keeping their order."""
    stored: list[bytes] = []
    magics: list[int] = []
    for name in names:
        topic = (name or "").encode()
        # This is the choice of brokers since 5.1.0; older ones have no longer topics.
        magic = Magic.V2 if len(name or "") > MAX_V1_TOPIC_LENGTH else Magic.V1
        layout = TOPIC_LENGTH[magic]
        fits = name is not None and len(topic) < 1 << 8 * layout.size
        stored.append(layout.pack(len(topic)) + topic if fits else b"")
        magics.append(int(magic))
    lengths = np.array([len(data) for data in stored], np.int64)
    replaced = np.array([REPLACED in (name or "") for name in names], bool)
    return Topics(b"".join(stored), np.cumsum(lengths) - lengths, lengths, np.array(magics, np.int64), replaced)


class Hosts(NamedTuple):
    """Serialized hosts.

    Attributes:
        data: `V6_SIZE` bytes for each host; shorter hosts are followed by zeros.
        sizes: int64, size of each host; 0 for an invalid one.
    """

    data: Array
    sizes: Array

    def of_size(self, size: int) -> Array:
        """Return all hosts, cut to a size."""
        return np.ascontiguousarray(self.data[:, :size]).view(f"V{size}")[:, 0]


def stored_hosts(texts: Sequence[str | None]) -> Hosts:
    """Serialize hosts given as `ip:port`, keeping their order."""
    stored = [_stored_host(text) for text in texts]
    data = np.frombuffer(b"".join(host.ljust(V6_SIZE, b"\0") for host in stored), np.uint8)
    return Hosts(data.reshape(-1, V6_SIZE), np.array([len(host) for host in stored], np.int64))


def _stored_host(text: str | None) -> bytes:
    ip, _, port = (text or "").rpartition(":")
    number = parse_int32(port)
    try:
        host = b"" if number is None else serialize_host(Host.of(ip.removeprefix("[").removesuffix("]"), number))
    except (ValueError, struct.error):
        return b""
    assert len(host) in {0, V4_SIZE, V6_SIZE}
    return host
