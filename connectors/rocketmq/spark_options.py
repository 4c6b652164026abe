"""The common options of the Spark source and sink: addresses and credentials.

Keys are never in options, because Spark writes options into plans and logs. Every process that connects reads them from
its environment (see `connectors.rocketmq.options`), or gets them from a user's function, `credentialsProvider`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.option_values import OptionValues
from commitlake.connectors.rocketmq.errors import RocketMQError
from commitlake.connectors.rocketmq.options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, ClientOptions
from commitlake.schemas.remoting.signing import Credentials

SHARED = ("namesrv", "brokers", "group", "timeoutMs", "retrySeconds", "tlsConfig", "credentialsProvider")
DEFAULT_TIMEOUT_MS = 10_000
_SECRETS = frozenset({"accesskey", "secretkey", "securitytoken", "rocketmq.client.accesskey"})
_PROVIDER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def refuse_secrets(given: Mapping[str, str]) -> None:
    """Check that no option holds a key.

    Raises:
        OptionError: if one does; the message does not contain its value.
    """
    for name in given:
        if name.lower().replace("_", "") in _SECRETS:
            raise OptionError(
                f"option {name}: keys are not given as options, which Spark writes into plans and logs. Set "
                f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} for the driver and the workers, or name a function "
                "with credentialsProvider=module:function"
            )


def client_options(values: Mapping[str, str], read: OptionValues) -> ClientOptions:
    """Return the client's options.

    Raises:
        OptionError: if an address is missing or not valid.
    """
    given = [name for name in ("namesrv", "brokers") if values.get(name, "").strip()]
    if not given:
        raise OptionError("the option 'namesrv' is missing: name servers as host:port, separated by semicolons")
    if len(given) > 1:
        raise OptionError("options namesrv and brokers: expected one of them, found both")
    try:
        return ClientOptions(
            values.get("namesrv", ""),
            request_seconds=read.least("timeoutMs", DEFAULT_TIMEOUT_MS, 1, "ms") / 1000,
            route_seconds=5.0,
            tls_config=values.get("tlsConfig"),
            brokers=values.get("brokers", ""),
        )
    except RocketMQError as error:
        raise OptionError(f"option {given[0]}: {error}") from None


def provider(values: Mapping[str, str]) -> str | None:
    """Return the name of the function that returns the keys, `module:function`.

    Raises:
        OptionError: if it has another form.
    """
    name = values.get("credentialsProvider")
    if name is not None and not _PROVIDER.fullmatch(name):
        raise OptionError(f"option credentialsProvider: expected module:function, found {name[:100]!r}")
    return name


def credentials_of(name: str | None) -> Credentials | None:
    """Return the keys from a provider; None without a provider, so that the environment's keys are used.

    Args:
        name: `module:function`; the function returns the access key, the secret key and, if there is one, a token.

    Raises:
        OptionError: if there is no such function, or it returns something else.
    """
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        found: Callable[[], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"option credentialsProvider: {name}: {error}") from None
    keys = found()
    if not isinstance(keys, tuple) or len(keys) not in (2, 3) or not all(isinstance(key, str) for key in keys[:2]):
        raise OptionError(
            f"option credentialsProvider: {name}: expected (access key, secret key) or (access key, secret key, token)"
            f", found {type(keys).__name__}"
        )
    return Credentials(*keys)
