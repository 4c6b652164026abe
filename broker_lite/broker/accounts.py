"""Accounts of a broker, and the requests that only administrators may send.

In ACL 1.0 every request is signed with the secret key of an account. Secrets come from the environment, or from a TOML
file that only its owner may read:

    [[accounts]]
    access-key = "shop"
    secret-key = "…"
    admin = true        # may change topics, groups, offsets and routes; default: false
    broker = true       # may register a broker at the name server; default: false

A server with accounts accepts requests that change shared state only from administrators, and only over connections
that nobody on the network can read. ACL 1.0 signs neither the request code nor a time, so anybody who reads one signed
request of an administrator could send it again later, or with another of these codes. The request must therefore come
from this machine or over TLS. Without accounts the server cannot tell users apart, and the request must come from this
machine.

"From this machine" means that the peer has a loopback address. If a proxy runs on this machine, every client that
connects through it has one.

Source: PlainPermissionManager, AclUtils (4.9.7).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.errors import NotPermittedError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.signing import check_signature
from commitlake.schemas.toml_text import MAX_BYTES, parse_toml

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
ACCESS_KEY_VARIABLE = "COMMITLAKE_BROKER_ACCESS_KEY"
SECRET_KEY_VARIABLE = "COMMITLAKE_BROKER_SECRET_KEY"  # noqa: S105 (a name)
MIN_SECRET_LENGTH = 6
"""RocketMQ's minimum, of access keys and secret keys."""


def check_admin_request_is_local(request: Command, channel: Channel) -> None:
    """Check, on a server without accounts, that an administration request comes from the server's own machine.

    Raises:
        NotPermittedError: if the request comes from another machine.
    """
    if request.code in ADMINISTRATION and not channel.peer.is_loopback:
        raise NotPermittedError(
            f"request {request.code} is allowed only from the server's own machine, because the server has no "
            f"accounts, found a connection from {channel.peer}: start the server with --accounts and --tls-config"
        )


class AccountsError(CommitLakeError, ValueError):
    """Error for accounts that are unsafe or cannot be read; its message contains no secret."""


class Accounts:
    """Accounts of a broker: secret keys by access key, with each account's rights."""

    def __init__(
        self,
        secret_keys: Mapping[str, str],
        administrators: frozenset[str],
        brokers: frozenset[str] = frozenset(),
    ) -> None:
        """Check that the given accounts are safe, and keep them.

        Args:
            secret_keys: by access key.
            administrators: access keys that may do everything.
            brokers: access keys that may register a broker.

        Raises:
            AccountsError: if there is none, or a secret is too short.
        """
        if not secret_keys:
            raise AccountsError("accounts: expected at least one account, found none: add a table [[accounts]]")
        for access_key, secret_key in secret_keys.items():
            if len(access_key) < MIN_SECRET_LENGTH or len(secret_key) < MIN_SECRET_LENGTH:
                raise AccountsError(
                    f"account {access_key[:80]!r}: expected an access key and a secret key of at least "
                    f"{MIN_SECRET_LENGTH} characters, found a shorter one"
                )
        self._secret_keys = secret_keys
        self._administrators = administrators
        self._brokers = brokers

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Accounts | None:
        """Return the administrator account that environment variables define, or None without them.

        Raises:
            AccountsError: if only one of the two variables is set.
        """
        access_key, secret_key = environment.get(ACCESS_KEY_VARIABLE), environment.get(SECRET_KEY_VARIABLE)
        if access_key is None and secret_key is None:
            return None
        if access_key is None or secret_key is None:
            raise AccountsError(
                f"expected both {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} in the environment, found only one of "
                "them: set both"
            )
        return cls({access_key: secret_key}, frozenset({access_key}))

    @classmethod
    def from_file(cls, path: Path) -> Accounts:
        """Read accounts from a TOML file.

        Raises:
            AccountsError: if other users may read the file, or its content is not valid.
        """
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    mode = stat.filemode(status.st_mode)
                    raise AccountsError(
                        f"{path}: expected a file that only its owner may read, found {mode}: run chmod 600"
                    )
                document = parse_toml(file.read(MAX_BYTES + 1).decode("utf-8"))
        except OSError as error:
            raise AccountsError(f"{path}: cannot read the file: {error.strerror}") from None
        except ValueError as error:
            if isinstance(error, AccountsError):
                raise
            raise AccountsError(f"{path}: expected TOML, found invalid TOML") from None
        secret_keys: dict[str, str] = {}
        administrators: set[str] = set()
        brokers: set[str] = set()
        accounts = document.get("accounts")
        for account in accounts if isinstance(accounts, list) else ():
            if not isinstance(account, dict):
                raise AccountsError(f"{path}: expected accounts as tables [[accounts]], found something else")
            access_key, secret_key = account.get("access-key"), account.get("secret-key")
            if not isinstance(access_key, str) or not isinstance(secret_key, str):
                raise AccountsError(
                    f"{path}: expected the texts access-key and secret-key in every account, found an account without "
                    "them"
                )
            secret_keys[access_key] = secret_key
            if account.get("admin") is True:
                administrators.add(access_key)
            if account.get("broker") is True:
                brokers.add(access_key)
        return cls(secret_keys, frozenset(administrators), frozenset(brokers))

    def check_request(self, request: Command, channel: Channel) -> None:
        """Check that a request is signed by an account that may send it on this connection.

        Raises:
            SignatureError: if the request has no valid signature of a known account.
            NotPermittedError: if the account may not send this request, or not on this connection.
        """
        access_key = check_signature(request.ext_fields, request.body, self._secret_keys)
        if request.code in REGISTRATION and access_key not in self._administrators | self._brokers:
            raise NotPermittedError(
                f"request {request.code} is allowed only for the account of a broker or an administrator, found "
                f"{access_key!r}"
            )
        if request.code not in ADMINISTRATION:
            return
        if access_key not in self._administrators:
            raise NotPermittedError(
                f"request {request.code} is allowed only for an administrator, found {access_key!r}"
            )
        if not channel.is_local_or_encrypted:
            raise NotPermittedError(
                f"request {request.code} is allowed only from the server's own machine or over TLS, found a connection "
                f"from {channel.peer} in plain text"
            )
