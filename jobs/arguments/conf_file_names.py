"""The name of a store, from a `broker.conf` beside it; see `jobs.arguments.broker_name`.

This module imports neither Arrow nor numpy, so that small processes can use it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from commitlake.connectors.lake.packs.names import find_broker_name_fault
from commitlake.connectors.reading.settings_files import list_settings_files
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConfError
from commitlake.schemas.layouts.rocketmq.store_conf import parse_broker_name

NAME_HINT = "use --broker NAME to give the store's name"
_LOGGER = logging.getLogger("commitlake.jobs.arguments.broker_name")


def read_names_in_conf_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, store name) pairs from the settings files in or beside a store's folder, the most reliable first."""
    for path, text in list_settings_files(folder):
        try:
            if isinstance(text, OSError):
                raise text
            name = parse_broker_name(text)
        except (OSError, BrokerConfError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            _LOGGER.warning("%s is not used for the store's name: %s. %s", path, why, NAME_HINT)
            continue
        if name is not None and (fault := find_broker_name_fault(name)):
            _LOGGER.warning("%s is not used for the store's name: brokerName: %s. %s", path, fault, NAME_HINT)
        elif name is not None:
            yield str(path), name
