"""The table `store_config`, which records stores' configurations over time."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal

TOPIC, GROUP, SETTING = "topic", "group", "setting"
_NAME = "store_config"

Key = tuple[str, str]
"""Kind and name of a setting."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The configuration of a store (topics, groups and settings) at one point in time.

    Attributes:
        values: JSON texts by kind and name.
        removed: kinds and names of earlier values that the store no longer has.
    """

    values: dict[Key, str] = field(default_factory=dict)
    removed: frozenset[Key] = frozenset()

    def values_of_kind(self, kind: str) -> dict[str, Any]:
        """Return the parsed values of one kind of setting, by name."""
        return {name: json.loads(value) for (found, name), value in self.values.items() if found == kind}


def read_store_config(lake: Lake, broker: str, time: datetime.datetime | None = None) -> StoreConfig:
    """Read a store's configuration as it was at a time.

    For a time before the first recorded configuration, the first one is returned, because it is the nearest known.

    Args:
        broker: The store's name.
        time: The time; None for the newest configuration.

    Returns:
        The configuration; empty if the lake has none of the store.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
    """
    return config_at(read_config_changes(lake, broker), time)


def read_config_changes(lake: Lake, broker: str) -> list[dict[str, Any]]:
    """Read all recorded changes of a store's configuration, oldest first; empty if there are none.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
    """
    try:
        table = lake.table(_NAME)
    except NoTableError:
        return []
    return _read_config_rows(table, broker)


def config_at(changes: Sequence[Mapping[str, Any]], time: datetime.datetime | None) -> StoreConfig:
    """Return a store's configuration at a time, computed from a list of all its changes."""
    if changes and time is not None:
        time = max(time, changes[0]["recorded_at"])
    found: dict[Key, str | None] = {}
    for change in changes:
        if time is None or change["recorded_at"] <= time:
            found[change["kind"], change["name"]] = change["value"]
    values = {key: value for key, value in found.items() if value is not None}
    return StoreConfig(values, frozenset(found.keys() - values.keys()))


def _read_config_rows(table: DeltaTable, broker: str) -> list[dict[str, Any]]:
    """Return a store's rows in `store_config`, oldest first."""
    sql = (
        f"SELECT recorded_at, kind, name, value FROM {_NAME} WHERE broker = {text_literal(broker)} ORDER BY recorded_at"
    )
    rows: list[dict[str, Any]] = rows_to_dicts(run_sql(table, _NAME, sql).read_all())
    return rows
