"""Limits on the state that clients can make a broker keep. RocketMQ trusts its clients and has few such limits.

Every limit is checked before a request has any effect.
"""

from __future__ import annotations

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


class LimitError(CommandError):
    """Error for a request that would exceed one of the broker's limits."""


def check_limit(what: str, limit: int, found: int) -> None:
    """Raise an error if a number exceeds its limit.

    Raises:
        LimitError: if `found` is more than `limit`.
    """
    if found > limit:
        raise LimitError(f"{what}: expected at most {limit}, found {found}")
