"""Request codes that change shared state: topics, groups, offsets, settings and routes.

If a server has accounts, it accepts these requests only from administrators, and only over connections that nobody on
the network can read. ACL 1.0 signs neither the request code nor a time, so anybody who reads one signed request of an
administrator could send it again later, or with another of these codes. The request must therefore come from this
machine or over TLS. Without accounts the server cannot tell users apart, and the request must come from this machine.

"From this machine" means that the peer has a loopback address. If a proxy runs on this machine, every client that
connects through it has one.
"""

from __future__ import annotations

from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.errors import NotPermittedError
from commitlake.schemas.remoting.frames import Command

ADMINISTRATION = frozenset(
    {
        # Topics and groups: deleting loses messages or progress; an old setting sent again undoes a newer one.
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        # Offsets: a group skips messages, or receives them twice.
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        # Files and settings of the broker.
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        # The name server: clients no longer find a topic or a broker, or find another one.
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""For administrators, from this machine or over TLS. Codes without a handler are always refused."""

REGISTRATION = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
    }
)
"""Requests that a broker sends to a name server: for administrators and for accounts of brokers."""


def check_without_accounts(request: Command, channel: Channel) -> None:
    """Check that an administration request comes from this machine, on a server without accounts.

    Raises:
        NotPermittedError: if the request comes from another machine.
    """
    if request.code in ADMINISTRATION and not channel.peer.is_loopback:
        raise NotPermittedError(
            f"request {request.code}: expected a connection from the server's own machine, as it has no accounts, "
            f"found one from {channel.peer}; start the server with --accounts and --tls-config"
        )
