"""Clients of boto3, one for each server and process; their calls may come from many threads.

A forked process makes its own: connections and locks of the parent's are of no use there.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import boto3
from botocore.config import Config

from commitlake.connectors.object_store.options import S3Options

MAX_ATTEMPTS = (
    8  # with a random wait of up to 1, 2, 4, 8, 16, 20 and 20 s between them: a server may start again meanwhile
)
FEW_ATTEMPTS = 2  # where a user waits, and a wrong endpoint is likelier than a tired server
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_CONNECTIONS = 16

_clients: dict[tuple[S3Options, int], Any] = {}
_lock = threading.Lock()


def s3_client(options: S3Options, attempts: int = MAX_ATTEMPTS) -> Any:
    """Return this process's client for a server.

    Args:
        options: the server.
        attempts: how often a request is sent until it is given up.
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
        # Checksums are computed and sent by whoever writes; some servers know no others.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session()  # of its own: making clients of a shared one is not safe among threads
    return session.client("s3", endpoint_url=options.endpoint, region_name=options.region, config=config)


def _forget() -> None:
    global _lock  # noqa: PLW0603 (the parent may have held it when it forked)
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)
