"""The option --broker-conf, which names a broker's settings file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.reading.settings_files import BROKER_PLACEHOLDER, ENCODING, MAX_BYTES
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import Options, option
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConfError
from commitlake.schemas.layouts.rocketmq.store_conf import StoreConf, parse_store_conf

BROKER_CONF_HELP = (
    "the broker's settings, RocketMQ's broker.conf or BoltMQ's broker.toml ({broker} stands for the store's name); "
    "options on the command line take precedence"
)


@dataclass(frozen=True, kw_only=True)
class BrokerConfArgument(Options):
    """The option `--broker-conf`, which names a settings file of a broker."""

    broker_conf: str | None = option(BROKER_CONF_HELP, metavar="FILE")


def read_broker_conf(path: str | None, broker: str) -> str:
    """Read the text of the broker's settings file that `--broker-conf` names.

    Args:
        path: Path of the file, with `{broker}` for the store's name; None or empty for no file.
        broker: The store's name.

    Returns:
        The content, empty without a file.

    Raises:
        JobError: The file cannot be read.
    """
    if not path:
        return ""
    path = path.replace(BROKER_PLACEHOLDER, broker)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise JobError(f"--broker-conf: {path} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise JobError(f"--broker-conf: {path}: expected at most {MAX_BYTES} bytes, found a larger file")
    return data.decode(ENCODING)


def read_store_conf(path: str | None, broker: str) -> StoreConf:
    """Read the settings of a store, such as its file sizes, from the broker's settings file that `--broker-conf` names.

    Args:
        path: See `read_broker_conf`.
        broker: The store's name.

    Returns:
        The settings; empty without a file.

    Raises:
        JobError: The file cannot be read, or has a value that the broker would not accept.
    """
    try:
        return parse_store_conf(read_broker_conf(path, broker))
    except BrokerConfError as error:
        hint = "the broker ignores a value that it cannot read, and uses its default: correct the file"
        raise JobError(f"--broker-conf {path}: {error}", hint) from None
