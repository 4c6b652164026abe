"""TLS of `commitlake broker`: the settings in the file that its options name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.broker.arguments import BrokerArguments
from commitlake.jobs.cli.command import JobError

if TYPE_CHECKING:
    from commitlake.broker_lite.replication.peer_client import PeerClientOptions
    from commitlake.schemas.remoting.tls import ServerTls
    from commitlake.schemas.remoting.tls_properties import TlsProperties


def tls_properties(arguments: BrokerArguments) -> TlsProperties | None:
    """Return the settings of the file, or None if there is none."""
    from commitlake.schemas.remoting.tls import read_tls_properties
    from commitlake.schemas.remoting.tls_properties import TlsConfigError, TlsMode

    if arguments.tls_config is None:
        if arguments.tls_mode not in {None, "disabled"}:
            raise JobError(f"--tls-mode {arguments.tls_mode}: certificates are missing", "give --tls-config FILE")
        return None
    try:
        found = read_tls_properties(Path(arguments.tls_config))
    except TlsConfigError as error:
        raise JobError(f"--tls-config {error}") from error
    return found if arguments.tls_mode is None else replace(found, server_mode=TlsMode(arguments.tls_mode))


def ports_tls(arguments: BrokerArguments, settings: TlsProperties | None) -> ServerTls | None:
    """Return the TLS settings of the ports, or None for plain text."""
    from commitlake.schemas.remoting.tls import server_tls
    from commitlake.schemas.remoting.tls_properties import TlsConfigError

    try:
        return None if settings is None else server_tls(settings)
    except TlsConfigError as error:
        raise JobError(f"--tls-config {arguments.tls_config}: {error}") from error


def asking_options(arguments: BrokerArguments, settings: TlsProperties | None) -> PeerClientOptions:
    """Return the options for requests to name servers and the master: signature and TLS."""
    from commitlake.broker_lite.replication.peer_client import PeerClientOptions
    from commitlake.connectors.rocketmq.errors import ClientOptionError
    from commitlake.connectors.rocketmq.options import environment_credentials
    from commitlake.schemas.remoting.tls import client_context
    from commitlake.schemas.remoting.tls_properties import TlsConfigError

    if not arguments.register and not arguments.is_slave:
        return PeerClientOptions()
    try:
        context = client_context(settings) if settings is not None and settings.is_client_enabled else None
        return PeerClientOptions(environment_credentials(), context)
    except ClientOptionError as error:
        raise JobError(str(error)) from error
    except TlsConfigError as error:
        raise JobError(f"--tls-config {arguments.tls_config}: {error}") from error
