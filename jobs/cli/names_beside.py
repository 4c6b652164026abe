"""The name of a store, from a `broker.conf` beside it; see `jobs.cli.broker_name`.

This module imports neither Arrow nor numpy, so that small processes can use it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from commitlake.connectors.lake.packs.names import fault_of_name
from commitlake.jobs.cli.broker_conf import MAX_BYTES
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConfError
from commitlake.schemas.layouts.rocketmq.store_conf import parse_broker_name
from commitlake.schemas.store_files import read_file

NAME_HINT = "use --broker NAME to give the store's name"
_PLACES_ABOVE = ("conf/broker.conf", "broker.conf")
_PLACES_WITHIN = ("broker.conf", "conf/broker.conf")
_LOGGER = logging.getLogger("commitlake.jobs.cli.broker_name")


def names_beside(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the files beside or in a store that name it, with the name; the most reliable file comes first."""
    above = [
        (folder / ".." / place).resolve() for place in _PLACES_ABOVE
    ]  # links above the store belong to the administrator
    for path, below in [*((path, None) for path in above), *((folder / place, folder) for place in _PLACES_WITHIN)]:
        if not os.path.lexists(path):
            continue
        try:
            text = read_file(path, below=below, limit=MAX_BYTES).decode("iso-8859-1")
            name = parse_broker_name(text)
        except (OSError, BrokerConfError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            _LOGGER.warning("%s is not used for the store's name: %s. %s", path, why, NAME_HINT)
            continue
        if name is not None and (fault := fault_of_name(name)):
            _LOGGER.warning("%s is not used for the store's name: brokerName: %s. %s", path, fault, NAME_HINT)
        elif name is not None:
            yield str(path), name
