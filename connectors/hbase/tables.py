"""Creation of the HBase table, and its layout.

Family `m` holds messages and their index entries. It has a row Bloom filter and the block cache (Thrift 1 enables
neither by default), one version per cell, and the TTL. Family `p` holds two rows about the table, which no TTL
removes: the layout (number of salts; read when the table is opened) and the progress (see `progress`).

Thrift 1 cannot create a table with several regions, but a Thrift 2 server can: run `hbase thrift2 start` for the minute
that creation takes, and give its port as `thrift2Port`. Or create the table first in `hbase shell`, with the output of
`hbase_shell_create_statement`; an empty table with these two families is accepted.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import thriftpy2
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TException

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError, HBaseRefusedError
from commitlake.connectors.hbase.keys import CONTROL
from commitlake.connectors.hbase.options import MAX_SALTS, HBaseOptions
from commitlake.schemas.errors import ExitCode

LAYOUT_VERSION = 1
_LAYOUT_ROW = CONTROL + b"layout"
_LAYOUT = b"p:layout"
_FOREVER = (1 << 31) - 1

# The used part of Thrift 2's own definition, org.apache.hadoop.hbase.thrift2 hbase.thrift.
_THRIFT2 = """
struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor {
  1: required binary name, 5: optional i32 bloomnFilterType, 6: optional i32 compressionType,
  8: optional i32 dataBlockEncoding, 11: optional i32 minVersions, 10: optional i32 maxVersions,
  13: optional i32 timeToLive, 14: optional bool blockCacheEnabled
}
struct TTableDescriptor { 1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns }
exception TIOError { 1: optional string message, 2: optional bool canRetry }
service THBaseService {
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
}
"""
_THRIFT2_BLOOM_ROW = 1
_THRIFT2_FAST_DIFF = 4
_THRIFT2_COMPRESSIONS = {"GZ": 1, "NONE": 2, "SNAPPY": 3, "LZ4": 4, "ZSTD": 6}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Settings that are fixed when the HBase table is created.

    Attributes:
        salts: number of key prefixes over which the rows are spread.
        version: version of the layout of keys and cells.
    """

    salts: int
    version: int = LAYOUT_VERSION


def open_existing_table(client: Client) -> TableLayout:
    """Open a table and return its layout.

    Raises:
        HBaseError: if it does not exist, or is not one of ours.
    """
    layout = _read_layout(client)
    if layout is None:
        raise HBaseError(
            f"the HBase table {client.options.table} was not created by CommitLake: expected one that 'archive "
            "--hbase' created. Name another table"
        )
    return layout


def open_or_create_table(client: Client) -> TableLayout:
    """Open the table, or create it with the client's options.

    Raises:
        HBaseError: if a table of that name exists that is not one of ours, or if several regions are requested, but no
            Thrift 2 server is given.
        HBaseRefusedError: if HBase refuses to create it.
    """
    options = client.options
    if options.table not in client.list_tables():
        _create_table(client, options)
    try:
        layout = _read_layout(client)
        if layout is None:
            if next(client.scan(b"", b"", page_rows=1), None):
                raise HBaseError(
                    f"the HBase table {options.table} was not created by CommitLake, and holds rows. Name another table"
                )
            value = json.dumps(asdict(TableLayout(options.salts))).encode()
            client.check_and_put(_LAYOUT_ROW, _LAYOUT, None, value)  # with two processes at once, the first one wins
    except HBaseRefusedError as error:
        raise HBaseError(f"{error}. Expected a table with the column families m and p: name another table") from None
    return layout or open_existing_table(client)


def hbase_shell_create_statement(options: HBaseOptions) -> str:
    """Return the statement that creates the table in `hbase shell`, with the splits that the options give."""
    common = "VERSIONS => 1, BLOOMFILTER => 'ROW'"
    ttl = "" if options.ttl_seconds is None else f", TTL => {options.ttl_seconds}"
    messages = (
        f"{{NAME => 'm', {common}, COMPRESSION => '{options.compression}', DATA_BLOCK_ENCODING => 'FAST_DIFF'{ttl}}}"
    )
    splits = ", ".join(f'"\\x{key[0]:02X}"' for key in region_split_keys(options))
    return f"create '{options.table}', {messages}, {{NAME => 'p', {common}}}" + (
        f", SPLITS => [{splits}]" if splits else ""
    )


def region_split_keys(options: HBaseOptions) -> list[bytes]:
    """Return the keys at which the table is split into regions: evenly distributed salts."""
    return [bytes((options.salts * number // options.regions,)) for number in range(1, options.regions)]


def _read_layout(client: Client) -> TableLayout | None:
    try:
        value = client.get([_LAYOUT_ROW], _LAYOUT).get(_LAYOUT_ROW)
    except HBaseRefusedError as error:
        name = client.options.table
        if "TableNotFoundException" not in str(error):
            raise
        raise HBaseError(
            f"there is no HBase table {name} at {client.options.address}: 'archive --hbase' creates it"
        ) from None
    if value is None:
        return None
    try:
        layout = TableLayout(**json.loads(value))
    except (ValueError, TypeError):
        layout = TableLayout(0, 0)
    if layout.version != LAYOUT_VERSION or not 1 <= layout.salts <= MAX_SALTS:
        raise HBaseError(
            f"the HBase table {client.options.table} has the layout {value.decode(errors='replace')[:200]}: expected "
            f"version {LAYOUT_VERSION}. Drop it; the next archive run creates it again from the lake"
        )
    return layout


def _create_table(client: Client, options: HBaseOptions) -> None:
    if options.regions > 1:
        _create_split_table(options)
        return
    common: dict[str, Any] = {"maxVersions": 1, "bloomFilterType": "ROW", "blockCacheEnabled": True}
    ttl = _FOREVER if options.ttl_seconds is None else options.ttl_seconds
    client.create_table(
        [
            {"name": b"m:", "compression": options.compression, "timeToLive": ttl, **common},
            {"name": b"p:", "timeToLive": _FOREVER, **common},
        ]
    )


def _create_split_table(options: HBaseOptions) -> None:
    if options.thrift2_port is None:
        raise HBaseError(
            f"option regions: expected 1, found {options.regions}: HBase's Thrift 1 server cannot create a table with "
            "several regions. Give thrift2Port, or create the table in hbase shell: "
            f"{hbase_shell_create_statement(options)}",
            exit_code=ExitCode.USAGE,
        )
    types: Any = thriftpy2.load_fp(io.StringIO(_THRIFT2), "commitlake_hbase2_thrift")
    common: dict[str, Any] = {"bloomnFilterType": _THRIFT2_BLOOM_ROW, "maxVersions": 1, "blockCacheEnabled": True}
    messages = types.TColumnFamilyDescriptor(
        name=b"m",
        compressionType=_THRIFT2_COMPRESSIONS[options.compression],
        dataBlockEncoding=_THRIFT2_FAST_DIFF,
        timeToLive=options.ttl_seconds,
        **common,
    )
    families = [messages, types.TColumnFamilyDescriptor(name=b"p", **common)]
    table = types.TTableDescriptor(types.TTableName(qualifier=options.table.encode()), families)
    place = f"Thrift 2 server {options.host}:{options.thrift2_port}"
    try:
        thrift = make_client(
            types.THBaseService,
            options.host,
            options.thrift2_port,
            timeout=options.timeout_ms,
        )
        try:
            thrift.createTable(table, region_split_keys(options))
        finally:
            thrift.close()
    except types.TIOError as error:
        said = (error.message or "").splitlines()[:1]
        raise HBaseRefusedError(
            f"HBase's {place} refused to create the table {options.table}: {''.join(said)}"
        ) from None
    except (TException, OSError) as error:
        raise HBaseError(
            f"HBase's {place} did not create the table {options.table}: {error}", is_transient=True
        ) from None
