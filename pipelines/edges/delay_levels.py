"""The delay levels of each broker, which determine when a waiting message is due."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.lake.store_config import SETTING, read_store_config
from commitlake.pipelines.verify.observed_delays import archived_levels
from commitlake.schemas.layouts.rocketmq.delay_levels import DEFAULT_DELAY_LEVELS_MS

_LOGGER = logging.getLogger(__name__)


class DelayLevels:
    """Reads the delay levels of brokers from `store_config`, each broker's once, when a message of it waits.

    Args:
        lake: Locations of the tables. If the table does not exist, every broker has RocketMQ's default levels.
    """

    def __init__(self, lake: Lake | None = None) -> None:
        self._lake = lake
        self._known: dict[str, Sequence[int]] = {}

    def of(self, broker: str) -> Sequence[int]:
        """Return the delays of levels 1, 2, 3, … in milliseconds.

        A level that the table does not have has the default delay. If the table is damaged, all levels have it, and
        there is a warning.
        """
        if broker not in self._known:
            self._known[broker] = self._read(broker) or DEFAULT_DELAY_LEVELS_MS
        return self._known[broker]

    def _read(self, broker: str) -> Sequence[int] | None:
        if self._lake is None:
            return None
        try:
            return archived_levels(read_store_config(self._lake, broker).of_kind(SETTING))
        except QueryError as error:
            _LOGGER.warning(
                "store_config of %s cannot be read: %s; delayed messages of broker %s are taken to be due by "
                "RocketMQ's default delay levels. 'commitlake maintain --repair' takes damaged files out",
                self._lake.root,
                error,
                broker,
            )
            return None
