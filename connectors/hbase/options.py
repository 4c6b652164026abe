"""Options of the source, the follower and look-ups. An unknown or wrong option is an error.

| option | default | meaning |
| --- | --- | --- |
| host, port | localhost, 9090 | HBase's Thrift server (Thrift 1: `hbase thrift start`) |
| table | commitlake_messages | the HBase table |
| transport, protocol | buffered, binary | those of the Thrift server: framed if started with -f, |
| | | -nonblocking or -hsha; compact if started with -c |
| timeoutMs | 60000 | timeout of one call; the first one after a restart of HBase took up to 30 s |
| retrySeconds | 300 | time for which a call is retried while regions move or servers start |
| connectSeconds | 15 | the same for the first connection; shorter, as a failure is usually a wrong address |
| batchRows | 2000 | messages per write call, and rows per page of a read |
| connections | as many as Spark runs tasks | number of concurrent writing tasks, each with its own connection |
| columns | all | comma-separated columns to read |
| salts | 16 | for a new table: number of parts its rows are spread over, 1 to 250 |
| regions | 1 | for a new table: initial number of regions, up to `salts`; more than 1 needs |
| | | `thrift2Port` |
| thrift2Port | none | port of a Thrift 2 server on `host`, which can create a table with several regions |
| ttlSeconds | none | for a new table: age at which HBase drops a message, counted from the end of its store date |
| compression | NONE | for a new table: NONE, GZ, SNAPPY, LZ4 or ZSTD, if the region servers have it |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from commitlake.connectors.hbase.errors import HBaseOptionError
from commitlake.connectors.option_names import known_options
from commitlake.schemas.layouts.numbers import parse_int64
from commitlake.schemas.tables.messages import MESSAGES

MAX_SALTS = 250
COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD")
_KNOWN = (
    "host", "port", "table", "transport", "protocol", "timeoutMs", "retrySeconds", "connectSeconds", "batchRows",
    "connections", "columns", "salts", "regions", "thrift2Port", "ttlSeconds", "compression",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HBaseOptions:
    """The options of one use of a table; see the module's table."""

    host: str = "localhost"
    port: int = 9090
    table: str = "commitlake_messages"
    transport: str = "buffered"
    protocol: str = "binary"
    timeout_ms: int = 60_000
    retry_seconds: int = 300
    connect_seconds: int = 15
    batch_rows: int = 2000
    connections: int | None = None
    columns: tuple[str, ...] | None = None
    salts: int = 16
    regions: int = 1
    thrift2_port: int | None = None
    ttl_seconds: int | None = None
    compression: str = "NONE"

    @classmethod
    def of_address(cls, address: str, **given: str) -> HBaseOptions:
        """Return options for a job's argument `HOST` or `HOST:PORT`.

        Raises:
            HBaseOptionError: if the port is not a number, or another option is not valid.
        """
        host, colon, port = address.rpartition(":")
        return cls.parse({"host": host, "port": port, **given} if colon else {"host": address, **given})

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> HBaseOptions:
        """Parse options from Spark: strings, with case-insensitive names.

        Raises:
            HBaseOptionError: if a name is not known, or a value is not valid.
        """
        values = known_options(given, _KNOWN, HBaseOptionError)
        salts = _number(values, "salts", 16, 1, MAX_SALTS)
        regions = _number(values, "regions", 1, 1, salts)
        thrift2_port = _optional(values, "thrift2Port", 1, 65535)
        return cls(
            host=_text(values, "host", "localhost"),
            port=_number(values, "port", 9090, 1, 65535),
            table=_text(values, "table", "commitlake_messages"),
            transport=_choice(values, "transport", ("buffered", "framed")),
            protocol=_choice(values, "protocol", ("binary", "compact")),
            timeout_ms=_number(values, "timeoutMs", 60_000, 1),
            retry_seconds=_number(values, "retrySeconds", 300, 0),
            connect_seconds=_number(values, "connectSeconds", 15, 0),
            batch_rows=_number(values, "batchRows", 2000, 1),
            connections=_optional(values, "connections", 1),
            columns=_columns(values.get("columns")),
            salts=salts,
            regions=regions,
            thrift2_port=thrift2_port,
            ttl_seconds=_optional(values, "ttlSeconds", 1, (1 << 31) - 2),
            compression=_choice({k: v.upper() for k, v in values.items()}, "compression", COMPRESSIONS),
        )

    def connected(self) -> HBaseOptions:
        """Return options for a process that connects later: the address is known to be right, so wait for a restart."""
        return replace(self, connect_seconds=max(self.connect_seconds, self.retry_seconds))

    @property
    def address(self) -> str:
        """The address of the Thrift server, for error messages."""
        return f"{self.host}:{self.port}"


def _text(values: Mapping[str, str], name: str, default: str) -> str:
    value = values.get(name, default).strip()
    if not value:
        raise HBaseOptionError(f"option {name}: expected a name, found nothing")
    return value


def _number(values: Mapping[str, str], name: str, default: int, least: int, most: int | None = None) -> int:
    found = _optional(values, name, least, most)
    return default if found is None else found


def _optional(values: Mapping[str, str], name: str, least: int, most: int | None = None) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    value = parse_int64(text)
    if value is None:
        raise HBaseOptionError(f"option {name}: expected a whole number, found {text[:100]!r}")
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"{least} to {most}"
        raise HBaseOptionError(f"option {name}: expected {limits}, found {value}")
    return value


def _choice(values: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = values.get(name, known[0])
    if value not in known:
        raise HBaseOptionError(f"option {name}: expected {', '.join(known)}, found {value!r}")
    return value


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    columns = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in columns:
        if name not in MESSAGES.names:
            raise HBaseOptionError(f"option columns: {name!r} is not one of {', '.join(MESSAGES.names)}")
    if not columns:
        raise HBaseOptionError("option columns: expected at least one column, found nothing")
    return columns
