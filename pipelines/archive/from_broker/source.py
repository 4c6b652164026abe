"""Which brokers and topics are pulled, and how patiently, in a form that travels to workers; secrets do not travel."""

from __future__ import annotations

from dataclasses import dataclass, field

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.options import Options
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.throttle import Rate

TOOLS_GROUP = "TOOLS_CONSUMER"


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """Brokers of a cluster.

    Attributes:
        client: where the name servers are.
        brokers: names of the brokers; all that the name servers know where empty.
        topics: names of the topics; all that the brokers have where empty.
        rate: how fast all tasks together may read.
        retry_seconds: how long a broker that does not answer is asked again.
    """

    client: Options
    brokers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    rate: Rate = field(default_factory=Rate)
    retry_seconds: float = 60.0

    def open_admin(self) -> Admin:
        """Return a client that asks.

        Raises:
            OptionError: if the keys, or the settings of TLS, in the environment cannot be used.
        """
        return Admin(self.client)

    def open_puller(self) -> Puller:
        """Return a client that pulls, for a group that every broker has; its offsets are never changed.

        Raises:
            OptionError: as for `open_admin`.
        """
        return Puller(TOOLS_GROUP, self.client)
