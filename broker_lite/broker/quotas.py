"""Quotas: limits on a resource per connection, per address and in total."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from commitlake.broker_lite.protocol import Channel

K = TypeVar("K")


class Quotas:
    """Counts of a resource that clients hold, with limits."""

    def __init__(self, *, of_one: int, of_address: int, in_all: int) -> None:
        """Set the limits.

        Args:
            of_one: limit for one connection.
            of_address: limit for all connections from one address together.
            in_all: limit for all connections together.
        """
        self._of_one = of_one
        self._of_address = of_address
        self._in_all = in_all
        self._by_channel: Counter[Channel] = Counter()
        self._by_address: Counter[bytes] = Counter()
        self.total = 0

    def has_room(self, channel: Channel, count: int = 1) -> bool:
        """Return whether a client may hold `count` more."""
        return (
            self._by_channel[channel] + count <= self._of_one
            and self._by_address[channel.peer.site] + count <= self._of_address
            and self.total + count <= self._in_all
        )

    def take(self, channel: Channel, count: int = 1) -> bool:
        """Add to a client's count; return False and change nothing if a limit would be exceeded."""
        if not self.has_room(channel, count):
            return False
        self._by_channel[channel] += count
        self._by_address[channel.peer.site] += count
        self.total += count
        return True

    def release(self, channel: Channel, count: int = 1) -> None:
        """Subtract from a client's count."""
        self.total -= count
        _subtract(self._by_channel, channel, count)
        _subtract(self._by_address, channel.peer.site, count)


def _subtract(counts: Counter[K], key: K, count: int) -> None:
    counts[key] -= count
    if counts[key] <= 0:
        del counts[key]
