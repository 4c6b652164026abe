"""Options of the source, the follower and look-ups."""

from __future__ import annotations

from dataclasses import dataclass, replace

from commitlake.connectors.source_options import DeclaredOptions, choice_parser, integer_parser, option
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.messages import MESSAGES

MAX_SALTS = 250
COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD")
_MAX_TTL_SECONDS = (1 << 31) - 2


def _parse_table_name(text: str) -> str:
    if not text.strip():
        raise ValueError("expected the name of a host or table, found nothing")
    return text.strip()


def _parse_columns(text: str) -> tuple[str, ...]:
    columns = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in columns:
        if name not in MESSAGES.names:
            raise ValueError(f"expected columns of messages, which are {', '.join(MESSAGES.names)}, found {name!r}")
    if not columns:
        raise ValueError("expected the name of at least one column, found nothing")
    return columns


@dataclass(frozen=True)
class HBaseOptions(DeclaredOptions):
    """Options for the use of one HBase table."""

    host: str = option("host", _parse_table_name, "localhost", "HBase's Thrift server (Thrift 1: `hbase thrift start`)")
    port: int = option("port", integer_parser(1, 65535), 9090, "its port")
    table: str = option("table", _parse_table_name, "commitlake_messages", "the HBase table")
    transport: str = option(
        "transport",
        choice_parser(("buffered", "framed")),
        "buffered",
        "that of the Thrift server: framed if it was started with -f, -nonblocking or -hsha",
    )
    protocol: str = option(
        "protocol",
        choice_parser(("binary", "compact")),
        "binary",
        "that of the Thrift server: compact if it was started with -c",
    )
    timeout_ms: int = option(
        "timeoutMs",
        integer_parser(1),
        60_000,
        "timeout of one call; the first one after a restart of HBase took up to 30 s",
    )
    retry_seconds: int = option(
        "retrySeconds", integer_parser(0), 300, "time for which a call is retried while regions move or servers start"
    )
    connect_seconds: int = option(
        "connectSeconds",
        integer_parser(0),
        15,
        "the same for the first connection; shorter, as a failure is usually a wrong address",
    )
    batch_rows: int = option(
        "batchRows", integer_parser(1), 2000, "messages per write call, and rows per page of a read"
    )
    connections: int | None = option(
        "connections",
        integer_parser(1),
        None,
        "number of concurrent writing tasks, each with its own connection",
        shown="as many as Spark runs tasks",
    )
    columns: tuple[str, ...] | None = option(
        "columns", _parse_columns, None, "comma-separated columns to read", shown="all"
    )
    salts: int = option(
        "salts",
        integer_parser(1, MAX_SALTS),
        16,
        f"for a new table: number of parts its rows are spread over, 1 to {MAX_SALTS}",
    )
    regions: int = option(
        "regions",
        integer_parser(1, MAX_SALTS),
        1,
        "for a new table: initial number of regions, up to `salts`; more than 1 needs `thrift2Port`",
    )
    thrift2_port: int | None = option(
        "thrift2Port",
        integer_parser(1, 65535),
        None,
        "port of a Thrift 2 server on `host`, which can create a table with several regions",
    )
    ttl_seconds: int | None = option(
        "ttlSeconds",
        integer_parser(1, _MAX_TTL_SECONDS),
        None,
        "for a new table: age at which HBase drops a message, counted from the end of its store date",
    )
    compression: str = option(
        "compression",
        choice_parser(COMPRESSIONS, str.upper),
        "NONE",
        "for a new table: NONE, GZ, SNAPPY, LZ4 or ZSTD, if the region servers have it",
    )

    @classmethod
    def of_address(cls, address: str, **given: str) -> HBaseOptions:
        """Return options for a job's argument that has the form `HOST` or `HOST:PORT`.

        Raises:
            UsageError: if the port is not a number, or another option is not valid.
        """
        host, colon, port = address.rpartition(":")
        return cls.parse({"host": host, "port": port, **given} if colon else {"host": address, **given})

    def check(self) -> None:
        """Check that there are no more regions than salts."""
        if self.regions > self.salts:
            raise UsageError(f"option regions: expected 1 to {self.salts}, the number of salts, found {self.regions}")

    def with_long_connect_timeout(self) -> HBaseOptions:
        """Return options that wait as long for a connection as for a retry, in case the server is restarting."""
        return replace(self, connect_seconds=max(self.connect_seconds, self.retry_seconds))

    @property
    def address(self) -> str:
        """The address of the Thrift server, for error messages."""
        return f"{self.host}:{self.port}"
