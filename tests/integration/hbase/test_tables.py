"""Creation of the table in a real HBase: TTL, compression, Bloom filter, block cache, regions."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError, HBaseRefusedError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.hbase.tables import (
    TableLayout,
    hbase_shell_create_statement,
    open_existing_table,
    open_or_create_table,
)
from commitlake.connectors.lake.lake import Lake
from tests.servers.hbase import HBase
from tests.support.hbase_cells import hbase_rows
from tests.support.hbase_tables import append, message_rows


def _families(hbase: HBase, options: HBaseOptions) -> dict[bytes, dict[str, Any]]:
    connection = hbase.connection()
    try:
        families: dict[bytes, dict[str, Any]] = connection.table(options.table).families()
        return families
    finally:
        connection.close()


def test_a_table_is_created_with_the_requested_options(hbase: HBase, options: HBaseOptions) -> None:
    options = replace(options, ttl_seconds=86_400, compression="GZ")
    with Client(options) as client:
        assert open_or_create_table(client) == open_existing_table(client) == TableLayout(salts=4)
    families = _families(hbase, options)
    assert set(families) == {b"m", b"p"}
    messages, ours = families[b"m"], families[b"p"]
    assert (messages["time_to_live"], messages["compression"], messages["max_versions"]) == (86_400, b"GZ", 1)
    assert (messages["bloom_filter_type"], messages["block_cache_enabled"]) == (b"ROW", True)
    assert ours["time_to_live"] == (1 << 31) - 1  # the table's own settings do not expire


def test_regions_are_created_by_a_thrift_2_server(hbase: HBase, options: HBaseOptions) -> None:
    with hbase.thrift2() as port:
        options = replace(options, salts=8, regions=4, thrift2_port=port, ttl_seconds=86_400, compression="GZ")
        with Client(options) as client:
            assert open_or_create_table(client).salts == 8
            assert client.list_region_start_keys() == [b"", b"\x02", b"\x04", b"\x06"]
    messages = _families(hbase, options)[b"m"]
    assert (messages["time_to_live"], messages["compression"]) == (86_400, b"GZ")
    assert (messages["bloom_filter_type"], messages["block_cache_enabled"]) == (b"ROW", True)


def test_regions_without_a_thrift_2_server_are_refused_with_a_shell_statement(options: HBaseOptions) -> None:
    with (
        Client(replace(options, regions=2)) as client,
        pytest.raises(HBaseError, match=r"hbase shell: create 'mess"),
    ):
        open_or_create_table(client)


def test_an_unreachable_thrift_2_server_is_an_error(options: HBaseOptions) -> None:
    with (
        Client(replace(options, regions=2, thrift2_port=1)) as client,
        pytest.raises(HBaseError, match=r"Thrift 2 server 127\.0\.0\.1:1 did not create the table"),
    ):
        open_or_create_table(client)


def test_the_shell_statement_names_every_option() -> None:
    options = HBaseOptions(table="messages", salts=4, regions=2, ttl_seconds=60, compression="ZSTD")
    assert hbase_shell_create_statement(options) == (
        "create 'messages', {NAME => 'm', VERSIONS => 1, BLOOMFILTER => 'ROW', COMPRESSION => 'ZSTD', "
        "DATA_BLOCK_ENCODING => 'FAST_DIFF', TTL => 60}, {NAME => 'p', VERSIONS => 1, BLOOMFILTER => 'ROW'}, "
        'SPLITS => ["\\x02"]'
    )


def test_a_codec_that_the_servers_lack_is_an_error(options: HBaseOptions) -> None:
    with (
        Client(replace(options, compression="SNAPPY")) as client,
        pytest.raises(HBaseRefusedError, match=r"refused 'create' of the table .*[Ss]nappy"),
    ):
        open_or_create_table(client)


def test_a_missing_table_is_an_error(options: HBaseOptions) -> None:
    with Client(options) as client, pytest.raises(HBaseError, match=r"there is no HBase table messages_\d+ at 127"):
        open_existing_table(client)


def test_an_existing_table_keeps_its_number_of_salts(options: HBaseOptions) -> None:
    with Client(options) as client:
        open_or_create_table(client)
    with Client(replace(options, salts=9)) as client:
        assert open_or_create_table(client).salts == 4


def test_messages_expire_by_their_own_date(options: HBaseOptions, tmp_path: Path) -> None:
    """Written today, but of an old day: with a TTL of a day HBase does not show them."""
    rows = message_rows(20)
    today = datetime.datetime.now(datetime.UTC)
    for number, row in enumerate(rows):
        day = today - datetime.timedelta(days=3 if number < 5 else 0)
        row |= {"store_timestamp": day, "store_date": day.date()}
    append(tmp_path / "messages", rows)
    options = replace(options, ttl_seconds=86_400)
    assert follow_messages(None, Lake(str(tmp_path)), options).rows == 20
    assert len(hbase_rows(options)) == 15
