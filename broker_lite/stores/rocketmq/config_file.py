"""JSON file under `config/`, as RocketMQ or BoltMQ writes and reads it.

Each file has a `.bak` with its previous version, which is read if the file itself is missing or invalid. A file is
written to a temporary name, synced and renamed. Fields of RocketMQ that this store does not know are kept. BoltMQ's
format is read in any store, and written in a store of its dialect; in memory the format is RocketMQ's. Source:
ConfigManager (5.5.0).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commitlake.broker_lite.stores.engine.saved_table import SavedTable
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.numbers import INT64_MAX, INT64_MIN, int_within
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_fastjson

FOLDER = "config"


class ConfigFile(SavedTable):
    """JSON file in memory; several threads may use it.

    Attributes:
        document: content of the file.
    """

    name: str
    table: str
    other_name: str | None = None
    """Name that other brokers use; read if there is no file of its own name."""

    def __init__(self, root: Path, clock: Callable[[], int], dialect: Dialect = ROCKETMQ) -> None:
        """Read the file.

        Args:
            root: folder of the store.
            clock: returns ms since 1970.
            dialect: dialect in which the file is written.

        Raises:
            ConfigFileError: if neither the file nor its `.bak` can be read.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
        """
        super().__init__(root, FOLDER, self.name)
        self._clock = clock
        self._dialect = dialect
        others = () if self.other_name is None else (self.path.with_name(self.other_name),)
        self.document = self._read(self._parse, *others) or {}
        version = {"counter": 0, "stateVersion": 0, "timestamp": clock()}
        self.document["dataVersion"] = version | self.document.get("dataVersion", {})
        self.document[self.table] = self._normal(self.document.get(self.table, {}))
        self.is_changed = not self._file.exists

    def _parse(self, data: bytes) -> dict[str | int, Any]:
        try:
            document = parse_fastjson(data.decode())
            document = self._from_boltmq(document) if isinstance(document, dict) else document
            self._check(document)
        except ValueError as error:
            raise ValueError(f"expected a config file in RocketMQ's format, found another text: {error}") from None
        return dict(document)

    def _check(self, document: Any) -> None:
        for field, is_entry in (("dataVersion", is_number), (self.table, self._is_entry)):
            table = document.get(field, {}) if isinstance(document, dict) else None
            if not isinstance(table, dict) or not all(map(is_entry, table.values())):
                raise ValueError(f"expected an object {field!r} with entries of the right types")
        if not self._dialect.is_rocketmq:
            try:
                json.dumps(document)
            except TypeError as error:
                # fastjson accepts keys that are not strings; such a file could be read, but not be written again.
                raise ValueError(f"expected plain JSON, {error}") from None

    def _is_entry(self, value: Any) -> bool:
        """Return whether a value is a valid entry of the table."""
        raise NotImplementedError

    def _from_boltmq(self, document: dict[Any, Any]) -> dict[Any, Any]:
        """Return the document in RocketMQ's format; it may already have it."""
        return document

    def _to_boltmq(self) -> dict[Any, Any]:
        """Return the document in BoltMQ's format."""
        raise NotImplementedError

    def _normal(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """Return the table with keys of the types that this store uses."""
        return table

    @property
    def entries(self) -> dict[Any, Any]:
        """Main table of the file."""
        entries: dict[Any, Any] = self.document[self.table]
        return entries

    def put(self, name: str, entry: dict[str, Any]) -> None:
        """Insert or replace an entry of the table."""
        with self._guard:
            self.entries[name] = entry
            self.mark_changed()

    def remove_entry(self, name: str) -> bool:
        """Remove an entry of the table, and return whether it existed."""
        with self._guard:
            if self.entries.pop(name, None) is None:
                return False
            self.mark_changed()
            return True

    def mark_changed(self) -> None:
        """Count a change, which the next `save` writes."""
        version = self.document["dataVersion"]
        version["counter"] += 1
        version["timestamp"] = self._clock()
        self.is_changed = True

    def _serialize(self) -> bytes:
        if self._dialect.is_rocketmq:
            return serialize_fastjson(self.document).encode()
        return json.dumps(self._to_boltmq(), ensure_ascii=False, separators=(",", ":")).encode()


def is_number(value: Any) -> bool:
    """Return whether a value is a 64-bit integer."""
    return int_within(value, INT64_MIN, INT64_MAX) is not None
