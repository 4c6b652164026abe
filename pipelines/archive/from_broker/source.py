"""Brokers and topics to pull, with limits and retries. It can be sent to workers; it contains no secrets."""

from __future__ import annotations

from dataclasses import dataclass, field

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.throttle import Rate

TOOLS_GROUP = "TOOLS_CONSUMER"


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """Brokers of a cluster, with settings for pulling.

    Attributes:
        client: addresses of the name servers.
        brokers: names of the brokers; all that the name servers know if empty.
        topics: names of the topics; all that the brokers have if empty.
        rate: limit for all tasks together.
        retry_seconds: time for which requests to a broker that does not answer are retried.
    """

    client: ClientOptions
    brokers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    rate: Rate = field(default_factory=Rate)
    retry_seconds: float = 60.0

    def open_admin(self) -> Admin:
        """Return a client for queries.

        Raises:
            OptionError: if the keys or TLS settings in the environment are invalid.
        """
        return Admin(self.client)

    def open_puller(self) -> Puller:
        """Return a client for pulling, with a group that every broker has; its offsets are never changed.

        Raises:
            OptionError: as for `open_admin`.
        """
        return Puller(TOOLS_GROUP, self.client)
