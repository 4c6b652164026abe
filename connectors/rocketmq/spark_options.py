"""Common options of the Spark source and sink: addresses and credentials.

Keys are never in options, because Spark writes options into plans and logs. Every process that connects reads them from
its environment (see `connectors.rocketmq.options`), or gets them from a user's function, `credentialsProvider`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from commitlake.connectors.rocketmq.errors import InvalidMessageError, RocketMQError
from commitlake.connectors.rocketmq.options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, ClientOptions
from commitlake.connectors.rocketmq.producers.messages import check_group
from commitlake.connectors.source_options import DeclaredOptions, integer_parser, option
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.signing import Credentials

_SECRETS = frozenset({"accesskey", "secretkey", "securitytoken", "rocketmq.client.accesskey"})
_PROVIDER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def parse_group_name(text: str) -> str:
    """Parse the name of a group."""
    try:
        return check_group(text)
    except InvalidMessageError as error:
        raise UsageError(f"option {error}") from None


def _parse_provider(text: str) -> str:
    """Check the name of a function, given as `module:function`, and return it unchanged."""
    if not _PROVIDER.fullmatch(text):
        raise ValueError(f"expected the name of a Python function as module:function, found {text[:100]!r}")
    return text


@dataclass(frozen=True)
class ConnectionOptions(DeclaredOptions):
    """Options of the connections of a source or sink."""

    name_servers: str = option(
        "namesrv", str, "", "name servers, `host:port`, separated by semicolons or commas", shown="(needed)"
    )
    brokers: str = option(
        "brokers",
        str,
        "",
        "instead of namesrv, if there is no name server: `host:port` of each broker; it must give its settings to any "
        "client (GET_BROKER_CONFIG)",
        shown="(none)",
    )
    group: str = option("group", parse_group_name, "", "group of the connections")
    timeout_ms: int = option("timeoutMs", integer_parser(1, unit="ms"), 10_000, "time limit for an answer")
    retry_seconds: int = option(
        "retrySeconds", integer_parser(0, unit="seconds"), 60, "time for which an unresponsive broker is retried"
    )
    tls_config: str | None = option(
        "tlsConfig",
        str,
        None,
        "a `tls.properties` file on every machine, see Access keys and TLS",
        shown="the environment's",
    )
    credentials_provider: str | None = option(
        "credentialsProvider",
        _parse_provider,
        None,
        "`module:function` that returns (access key, secret key) in every process; by default "
        "COMMITLAKE_ROCKETMQ_ACCESS_KEY and COMMITLAKE_ROCKETMQ_SECRET_KEY are used",
        shown="the environment",
    )

    @classmethod
    def parse(cls, given_options: Mapping[str, str], **defaults: object) -> Self:
        """Parse and check the options that Spark passes as strings.

        Raises:
            UsageError: also for an option that holds a key; the message does not contain its value.
        """
        for name in given_options:
            if name.lower().replace("_", "") in _SECRETS:
                raise UsageError(
                    f"option {name} is refused, because Spark writes options into plans and logs, where keys could be "
                    f"read. Set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} for the driver and the workers, or "
                    "name a function with credentialsProvider=module:function"
                )
        return super().parse(given_options, **defaults)

    def check(self) -> None:
        """Check that either name servers or brokers are given, with valid addresses."""
        if not self.name_servers.strip() and not self.brokers.strip():
            raise UsageError(
                "the option 'namesrv' is missing: give the name servers as host:port, separated by semicolons"
            )
        if self.name_servers.strip() and self.brokers.strip():
            raise UsageError("options namesrv and brokers: expected only one of them, found both")
        try:
            _ = self.client_options
        except RocketMQError as error:
            name = "namesrv" if self.name_servers.strip() else "brokers"
            raise UsageError(f"option {name}: {error}") from None

    @property
    def client_options(self) -> ClientOptions:
        """Addresses, time limits and other settings of the connections."""
        return ClientOptions(
            self.name_servers,
            request_seconds=self.timeout_ms / 1000,
            route_seconds=5.0,
            tls_config=self.tls_config,
            brokers=self.brokers,
        )


def load_credentials(provider: str | None) -> Credentials | None:
    """Return the credentials that a provider function gives; None if no provider is named.

    Args:
        provider: `module:function`; the function returns the access key, the secret key and, if there is one, a token.

    Raises:
        UsageError: if there is no such function, or it returns something else.
    """
    if provider is None:
        return None
    module, _, function = provider.partition(":")
    try:
        found: Callable[[], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"option credentialsProvider: the function {provider} cannot be imported: {error}") from None
    keys = found()
    if not isinstance(keys, tuple) or len(keys) not in (2, 3) or not all(isinstance(key, str) for key in keys[:2]):
        raise UsageError(
            f"option credentialsProvider: expected that {provider} returns (access key, secret key) or (access key, "
            f"secret key, token), found {type(keys).__name__}"
        )
    return Credentials(*keys)
