"""Clients of boto3, one for each server and process; their calls may come from many threads.

A forked process creates its own clients, because it cannot use the connections and locks of its parent.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import boto3
from botocore.config import Config

from commitlake.connectors.storage.options import S3Options

MAX_ATTEMPTS = 8  # waits between them are random, up to 1, 2, 4, 8, 16, 20 and 20 s: enough for a server to restart
FEW_ATTEMPTS = 2  # while a user waits, and a wrong endpoint is more likely than an overloaded server
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_CONNECTIONS = 16

_clients: dict[tuple[S3Options, int], Any] = {}
_lock = threading.Lock()


def s3_client(options: S3Options, attempts: int = MAX_ATTEMPTS) -> Any:
    """Return this process's client for a server.

    Args:
        attempts: maximum number of attempts for a request.
    """
    with _lock:
        if (options, attempts) not in _clients:
            _clients[options, attempts] = _new_client(options, attempts)
        return _clients[options, attempts]


def _new_client(options: S3Options, attempts: int) -> Any:
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        signature_version="s3v4",
        s3={"addressing_style": "virtual" if options.virtual_hosts else "path"},
        # The upload code computes and sends checksums itself; some servers support no others.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session()  # its own session: creating clients from a shared one is not thread-safe
    return session.client("s3", endpoint_url=options.endpoint, region_name=options.region, config=config)


def _forget() -> None:
    global _lock  # noqa: PLW0603 (the parent may have held it when it forked)
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)
