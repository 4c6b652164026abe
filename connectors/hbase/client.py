"""A connection to HBase's Thrift server that outlives restarts of either, and regions that move.

Every call may be repeated: rows are always written with the same cells, and reads continue after the last row received.
So a call with a temporary error is retried, with growing pauses, for up to `retrySeconds`. Before a retry, the client
replaces a connection that is broken, or that timed out and could still deliver an old answer. A permanent error is
raised at once.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import happybase
from Hbase_thrift import AlreadyExists, BatchMutation, ColumnDescriptor, IllegalArgument, Mutation  # from happybase
from Hbase_thrift import IOError as HBaseIOError
from thriftpy2.thrift import TException

from commitlake.connectors.hbase.errors import HBaseError, HBaseRefusedError
from commitlake.connectors.hbase.options import HBaseOptions

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
_LONGEST_MESSAGE = 300
# Permanent errors, by the names of Java's exceptions in HBase's answer.
_FINAL = (
    "TableNotFoundException", "TableNotEnabledException", "TableNotDisabledException", "TableExistsException",
    "NoSuchColumnFamilyException", "AccessDeniedException", "IllegalArgumentException", "NamespaceNotFoundException",
    "DoNotRetryIOException: Compression", "UnsupportedOperationException",
)  # fmt: skip

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Row(NamedTuple):
    """A row: its key, and its cells by `family:qualifier`."""

    key: bytes
    cells: Mapping[bytes, bytes]


class Client:
    """A table of HBase; one connection, used by one thread.

    Attributes:
        options: server, table, timeouts and retries.
        retries: number of repeated calls so far.
    """

    def __init__(self, options: HBaseOptions) -> None:
        """Prepare a client. The first call connects."""
        self.options = options
        self.retries = 0
        self._connection: happybase.Connection | None = None
        self._was_connected = False
        self._table = options.table.encode()

    def __enter__(self) -> Self:
        """Return the client, for a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def write(self, mutations: Sequence[tuple[bytes, bytes, bytes]], timestamp_ms: int) -> None:
        """Put cells, each as (row key, `family:qualifier`, value), all at one timestamp.

        Raises:
            HBaseError: if HBase did not take them in time; some of them may have been written.
            HBaseRefusedError: if HBase refuses the request.
        """
        rows = [BatchMutation(key, [Mutation(False, column, value, True)]) for key, column, value in mutations]
        self._call_with_retries("write", lambda thrift: thrift.mutateRowsTs(self._table, rows, timestamp_ms, {}))

    def delete(self, keys: Sequence[bytes], family: bytes, timestamp_ms: int) -> None:
        """Delete the cells of a column family in these rows, up to a timestamp.

        Raises:
            HBaseError: if HBase did not do it in time.
            HBaseRefusedError: if HBase refuses the request.
        """
        rows = [BatchMutation(key, [Mutation(True, family, b"", True)]) for key in keys]
        self._call_with_retries("delete", lambda thrift: thrift.mutateRowsTs(self._table, rows, timestamp_ms, {}))

    def get(self, keys: Sequence[bytes], column: bytes) -> dict[bytes, bytes]:
        """Return the values of one column by row key, for the given rows; rows that do not exist are left out.

        Raises:
            HBaseError: if HBase did not answer in time.
            HBaseRefusedError: if HBase refuses the request.
        """
        if not keys:
            return {}
        rows = self._call_with_retries(
            "get", lambda thrift: thrift.getRowsWithColumns(self._table, list(keys), [column], {})
        )
        return {row.row: row.columns[column].value for row in rows if column in row.columns}

    def check_and_put(self, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Write one cell if it has the expected value (None: no value), and return whether it was written.

        A repeated call fails because its own value is already there; the caller must then read the cell.
        """
        mutation = Mutation(False, column, value, True)
        done = self._call_with_retries(
            "checkAndPut", lambda thrift: thrift.checkAndPut(self._table, key, column, expected, mutation, {})
        )
        return bool(done)

    def scan(
        self, start_key: bytes, end_key: bytes, *, page_rows: int, first_page_rows: int | None = None
    ) -> Iterator[list[Row]]:
        """Yield rows from `start_key` to before `end_key`, in the order of their keys, page by page.

        Each page is a separate scan, so a lost connection loses no rows, and no scan stays open on the server.

        Raises:
            HBaseError: if HBase did not answer in time.
            HBaseRefusedError: if HBase refuses the request.
        """
        rows = first_page_rows or page_rows
        while True:
            page = self._call_with_retries("scan", _make_page_scan(self._table, start_key, end_key, rows))
            if page:
                yield page
            if len(page) < rows:
                return
            # The smallest key after the last row.
            start_key, rows = page[-1].key + b"\0", page_rows

    def list_tables(self) -> list[str]:
        """Return the names of all tables."""
        return [name.decode() for name in self._call_with_retries("list tables", lambda thrift: thrift.getTableNames())]

    def create_table(self, families: Sequence[Mapping[str, Any]]) -> bool:
        """Create the table, and return False if it existed already.

        Args:
            families: for each family, the fields of Thrift 1's `ColumnDescriptor`.
        """
        descriptors = [ColumnDescriptor(**family) for family in families]
        try:
            self._call_with_retries("create", lambda thrift: thrift.createTable(self._table, descriptors))
        except AlreadyExists:
            return False
        return True

    def request_compaction(self) -> None:
        """Request a major compaction, which removes overwritten and deleted cells from the table's files.

        HBase does this asynchronously. Cells that are still in its memory are not compacted.
        """
        self._call_with_retries("compact", lambda thrift: thrift.majorCompact(self._table))

    def list_region_start_keys(self) -> list[bytes]:
        """Return the first keys of the table's regions, in order."""
        found = self._call_with_retries("list regions", lambda thrift: thrift.getTableRegions(self._table))
        return sorted(region.startKey for region in found)

    def _call_with_retries(self, operation: str, call: Callable[[Any], _T]) -> _T:
        """Repeat a call until it succeeds, until it fails permanently, or until the time limit is reached."""
        began = time.monotonic()
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return call(self._thrift_client())
            except HBaseIOError as error:
                said = _first_line(error.message)
                # The exception's class may be anywhere in Java's stack trace, which the message has.
                if any(name in _to_text(error.message) for name in _FINAL):
                    raise self._refused_error(operation, said) from None
            except IllegalArgument as error:
                raise self._refused_error(operation, _first_line(error.message)) from None
            except AlreadyExists:
                raise
            except (TException, OSError, EOFError) as error:
                said = _first_line(getattr(error, "message", None) or str(error)) or type(error).__name__
                self.close()
            # Before the first connection, a wrong address is more likely than a restart.
            allowed = self.options.retry_seconds if self._was_connected else self.options.connect_seconds
            if time.monotonic() - began + pause > allowed:
                raise HBaseError(
                    f"HBase's Thrift server {self.options.address} gave no answer to {operation!r} of the table "
                    f"{self.options.table} within {allowed} s: {said}. Check whether it and HBase are running; "
                    "what was written is kept, and the next run continues from there",
                    is_transient=True,
                )
            self.retries += 1
            _log.info("%s of %s failed (%s); trying again in %.1f s", operation, self.options.table, said, pause)
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (many clients, not in step)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _thrift_client(self) -> Any:
        if self._connection is None:
            options = self.options
            self._connection = happybase.Connection(
                options.host,
                options.port,
                timeout=options.timeout_ms,
                transport=options.transport,
                protocol=options.protocol,
            )
            self._was_connected = True
        return self._connection.client

    def _refused_error(self, operation: str, message: str) -> HBaseRefusedError:
        return HBaseRefusedError(
            f"HBase at {self.options.address} refused {operation!r} of the table {self.options.table}: {message}"
        )


def _make_page_scan(table: bytes, start_key: bytes, end_key: bytes, page_rows: int) -> Callable[[Any], list[Row]]:
    def scan_page(thrift: Any) -> list[Row]:
        scanner = thrift.scannerOpenWithScan(table, happybase.table.TScan(start_key, end_key, caching=page_rows), {})
        try:
            # A page with fewer rows than requested is the last one, as in HBase's own client (used by Thrift's server).
            found = thrift.scannerGetList(scanner, page_rows)
        finally:
            thrift.scannerClose(scanner)
        return [Row(row.row, {name: cell.value for name, cell in row.columns.items()}) for row in found]

    return scan_page


def _to_text(message: str | bytes | None) -> str:
    return message.decode(errors="replace") if isinstance(message, bytes) else message or ""


def _first_line(message: str | bytes | None) -> str:
    lines = _to_text(message).strip().splitlines()
    return lines[0][:_LONGEST_MESSAGE] if lines else ""
