"""One JSON file under `config/`, as RocketMQ writes and reads them, or BoltMQ.

Each has a `.bak` with its previous version, which is read where the file itself is missing or broken. A file is written
beside its place, synced and renamed. What RocketMQ writes into it and this store does not know stays in it. BoltMQ's
forms are read in any store, and written in one of its dialect; here they are RocketMQ's. Source: ConfigManager (5.5.0).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commitlake.broker_lite.stores.engine.kept_table import KeptTable
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.numbers import INT64_MAX, INT64_MIN, int_within
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_fastjson

FOLDER = "config"


class ConfigFile(KeptTable):
    """One JSON file; several threads may use it.

    Attributes:
        document: all that is in it.
    """

    name: str
    table: str
    other_name: str | None = None
    """What others call the file; read where there is none of its own name."""

    def __init__(self, root: Path, clock: Callable[[], int], dialect: Dialect = ROCKETMQ) -> None:
        """Read the file.

        Args:
            root: the store's folder.
            clock: gives ms since 1970.
            dialect: whose form the file is written in.

        Raises:
            ConfigFileError: if neither it nor its `.bak` can be read.
            UnsafeFileError: if one of them is a link or no file.
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
            raise ValueError(f"expected a config file of RocketMQ's, found: {error}") from None
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
                # A key that only fastjson has: the file could be read, and not be written again.
                raise ValueError(f"expected plain JSON, {error}") from None

    def _is_entry(self, value: Any) -> bool:
        """Whether this may be an entry of the table."""
        raise NotImplementedError

    def _from_boltmq(self, document: dict[Any, Any]) -> dict[Any, Any]:
        """The document in RocketMQ's form; one that has it stays as it is."""
        return document

    def _to_boltmq(self) -> dict[Any, Any]:
        """The document in BoltMQ's form."""
        raise NotImplementedError

    def _normal(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """The table with keys of the types that this store uses."""
        return table

    @property
    def entries(self) -> dict[Any, Any]:
        """The table that the file is about."""
        entries: dict[Any, Any] = self.document[self.table]
        return entries

    def put(self, name: str, entry: dict[str, Any]) -> None:
        """Put an entry into the table, in place of the one that is there."""
        with self._guard:
            self.entries[name] = entry
            self.mark_changed()

    def remove_entry(self, name: str) -> bool:
        """Take an entry out of the table; tells whether there was one."""
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
    """Return whether a value is a whole number of 64 bits."""
    return int_within(value, INT64_MIN, INT64_MAX) is not None
