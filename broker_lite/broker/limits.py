"""Limits on the state and the log lines that clients can make a broker keep: in total, and for each of them.

RocketMQ trusts its clients and has few such limits. Every limit is checked before a request has any effect.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.errors import CommandError

MAX_NAME_LENGTH = 255
"""Maximum length of the names of groups, topics, clients and brokers."""
MAX_MEMBERSHIPS_OF_ONE = 4096
"""Memberships (client id and group) of one connection; RocketMQ's clients have a few."""
MAX_MEMBERSHIPS_OF_ADDRESS = 65_536
MAX_MEMBERSHIPS = 262_144
MAX_CLIENTS_OF_ONE = 256
"""Client ids on one connection; RocketMQ's clients have one."""
MAX_SUBSCRIPTIONS = 1024
"""Topics of one group."""
MAX_SUBSCRIPTION_CHARACTERS = 64 << 20
"""Characters of the subscriptions of all groups together."""
MAX_LOCKS_OF_REQUEST = 2048
MAX_LOCKS = 100_000
MAX_OFFSETS = 500_000
"""Number of stored offsets: one for each queue and group."""
MAX_ATTRIBUTE_LENGTH = 64
"""Length of the value of a topic's attribute."""
MAX_RELAYED_BYTES = 64 << 10
"""Size of the body of a request that is relayed to a client."""
MAX_RELAYED = 10_000
"""Relayed requests that clients have not answered yet."""
MAX_MEMBERS_ASKED = 1024
"""Members of a group that one request asks for their offsets."""
MAX_STATUS_BYTES = 256 << 10
"""Size of one member's answer with its offsets: some 3,000 queues."""
MAX_STATUSES_BYTES = 4 << 20
"""Size of the offsets of all members in one answer. The members share the queues of a topic, so this is for 50,000."""
MAX_STATUSES_BYTES_OF_ADDRESS = 16 << 20
MAX_STATUSES_BYTES_IN_ALL = 64 << 20
"""Members' offsets that the broker keeps until the last member of each group has answered."""
K = TypeVar("K")
WINDOW_SECONDS = 60
MAX_LINES = 10
"""Maximum number of lines of one kind in a window."""


def check_limit(resource: str, limit: int, count: int) -> None:
    """Raise an error if a number exceeds its limit.

    Raises:
        CommandError: if `count` is more than `limit`.
    """
    if count > limit:
        raise CommandError(f"{resource}: expected at most {limit}, found {count}")


class Quotas:
    """Numbers of units of a resource that clients use, with limits per connection, per address and in total."""

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
        """Return whether the limits allow a client to hold `count` more units of the resource."""
        return (
            self._by_channel[channel] + count <= self._of_one
            and self._by_address[channel.peer.network_prefix] + count <= self._of_address
            and self.total + count <= self._in_all
        )

    def take(self, channel: Channel, count: int = 1) -> bool:
        """Reserve `count` units for a client; return False, and reserve nothing, if a limit would be exceeded."""
        if not self.has_room(channel, count):
            return False
        self._by_channel[channel] += count
        self._by_address[channel.peer.network_prefix] += count
        self.total += count
        return True

    def release(self, channel: Channel, count: int = 1) -> None:
        """Release `count` units of a client."""
        self.total -= count
        _subtract_from_count(self._by_channel, channel, count)
        _subtract_from_count(self._by_address, channel.peer.network_prefix, count)


def _subtract_from_count(counts: Counter[K], key: K, count: int) -> None:
    counts[key] -= count
    if counts[key] <= 0:
        del counts[key]


class LimitedLog:
    """Logger that limits the warnings of each kind, so that clients cannot fill the disk with them.

    The first lines of each kind of warning in a minute are logged; the others are counted, and the count is logged.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        """Create a logger that has not counted any warnings yet.

        Args:
            logger: receives the lines.
            clock: returns the time in seconds.
        """
        self._logger = logger
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def warning(self, sentence: str, *values: object) -> None:
        """Log a warning; if its kind has reached the limit, only count it.

        Args:
            sentence: format string; it identifies the kind of warning, and must not contain text from a client.
            values: values for the format string.
        """
        now = self._clock()
        start, lines = self._windows.get(sentence, (now, 0))
        if now - start >= WINDOW_SECONDS:
            self.log_suppressed_warnings()
            start, lines = now, 0
        self._windows[sentence] = (start, lines + 1)
        if lines < MAX_LINES:
            self._logger.warning(sentence, *values)

    def log_suppressed_warnings(self) -> None:
        """Log the number of suppressed warnings for each kind whose window has ended; call this regularly."""
        now = self._clock()
        for sentence, (start, lines) in list(self._windows.items()):
            if now - start < WINDOW_SECONDS:
                continue
            del self._windows[sentence]
            if lines > MAX_LINES:
                self._logger.warning("%d more warnings within %d s like: %s", lines - MAX_LINES, now - start, sentence)
