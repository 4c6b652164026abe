"""Request codes that change what belongs to everybody: topics, groups, offsets, settings and routes.

Where a server has accounts, these are done for an administrator only, and only if nobody on the network could have
made or repeated the request: ACL 1.0 signs neither the request code nor a time, so whoever reads one signed request of
an administrator could send it again, later, or under another of these codes. Hence it must come from this machine or
over TLS. Without accounts nobody can be told from another, and such requests must come from this machine.

"From this machine" means that the connection's other end has a loopback address: behind a proxy on this machine
everybody has.
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
        # Offsets: a group skips messages, or gets them again.
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
"""For administrators, from this machine or over TLS. Codes without a handler are refused in any case."""

REGISTRATION = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
    }
)
"""What a broker sends to a name server: for administrators and for accounts of brokers."""


def check_without_accounts(request: Command, channel: Channel) -> None:
    """Make sure that administration comes from this machine, where a server has no accounts.

    Raises:
        NotPermittedError: if it comes from another one.
    """
    if request.code in ADMINISTRATION and not channel.peer.is_loopback:
        raise NotPermittedError(
            f"request {request.code}: expected it from the server's own machine, as there are no accounts, found it "
            f"from {channel.peer}; start the server with --accounts and --tls-config"
        )
