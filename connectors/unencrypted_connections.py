"""A warning, once per server, about signed requests over an unencrypted network."""

from __future__ import annotations

import ipaddress
import logging

logger = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()


def warn_unencrypted(server: str, host: str, advice: str) -> None:
    """Log a warning, once per server, about a connection without TLS to another machine.

    Args:
        server: kind and address of the server.
        host: its name or address.
        advice: advice for the user.
    """
    if _is_this_machine(host) or (server, host) in _warned:
        return
    _warned.add((server, host))
    logger.warning("%s is reached without TLS: anybody on the network path can read signed requests, tokens and "
                   "messages. %s",
                   server, advice)  # fmt: skip


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
