"""How much clients may have a broker keep. RocketMQ has few such limits: its clients mean no harm.

Every limit is checked before a request has any effect.
"""

from __future__ import annotations

from commitlake.schemas.remoting.errors import CommandError

MAX_NAME_LENGTH = 255
"""Of groups, topics, clients and brokers."""
MAX_PLACES_OF_ONE = 4096
"""Groups times clients that one connection may bring; RocketMQ's clients have a few."""
MAX_PLACES_OF_ADDRESS = 65_536
MAX_PLACES = 262_144
MAX_CLIENTS_OF_ONE = 256
"""Client ids on one connection; RocketMQ's clients have one."""
MAX_SUBSCRIPTIONS = 1024
"""Topics of one group."""
MAX_SUBSCRIPTION_CHARACTERS = 64 << 20
"""Of all groups' subscriptions together."""
MAX_LOCKS_OF_REQUEST = 2048
MAX_LOCKS = 100_000
MAX_OFFSETS = 500_000
"""Queues times groups whose offsets are kept."""
MAX_ATTRIBUTE_LENGTH = 64
"""Of the value of a topic's attribute."""
MAX_RELAYED_BYTES = 64 << 10
"""Of the body of a request that is handed on to a client."""
MAX_RELAYED = 10_000
"""Requests whose answers clients owe."""


class LimitError(CommandError):
    """A request for more than a broker keeps."""


def check_limit(what: str, limit: int, found: int) -> None:
    """Refuse more of something than there may be.

    Raises:
        LimitError: if there is more.
    """
    if found > limit:
        raise LimitError(f"{what}: expected at most {limit}, found {found}")
