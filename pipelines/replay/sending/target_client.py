"""Clients for the target of a replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from commitlake.connectors.rocketmq import Admin, ClientOptions, Producer, ProducerOptions, Puller
from commitlake.pipelines.replay.sending.queue_sender import TargetClient

_GROUP = "commitlake-replay"
_SEND_SECONDS = 15.0
_REQUEST_SECONDS = 10.0


def client_options(name_servers: str) -> ClientOptions:
    """Return the options for requests to brokers; keys and TLS settings come from the environment."""
    return ClientOptions(name_servers, request_seconds=_REQUEST_SECONDS)


@contextmanager
def open_target_client(name_servers: str) -> Iterator[TargetClient]:
    """Open the clients for a target, and close them at the end of the block.

    Args:
        name_servers: `host:port` of each, separated by semicolons.
    """
    options = client_options(name_servers)
    with (
        Producer(_GROUP, options, ProducerOptions(send_seconds=_SEND_SECONDS)) as producer,
        Puller(_GROUP, options) as puller,
        Admin(options) as admin,
    ):
        yield TargetClient(producer, puller, admin, name_servers)
