"""An erasure in HBase: rows lose their contents, and entries by key are deleted, for any order of followers."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.keys import BY_KEY, BY_UNIQUE_KEY
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.writer import write_messages
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.errors import ExitCode
from tests.servers.hbase import HBase
from tests.support.audited_lakes import judge_nothing
from tests.support.erased_lakes import KEY, MARK, shop_messages
from tests.support.lakes import GrowingLake


def follow(growing: GrowingLake, options: HBaseOptions) -> None:
    """Archive new messages, and let HBase follow."""
    run_archive(HERE, Config(str(growing.store), growing.lake, hbase=options, judge=judge_nothing))


def cells(options: HBaseOptions) -> tuple[str, int]:
    """Return all answers of HBase as text, and the number of entries by key."""
    with Client(options) as client:
        rows = [row for page in client.scan(b"", b"\xff" * 8, page_rows=1000) for row in page]
    entries = sum(row.key[1:2] in (BY_KEY, BY_UNIQUE_KEY) for row in rows)
    return repr(rows), entries


@pytest.mark.long("a follower of keys meets an erasure in a unit test each time")
def test_rows_read_before_an_erasure_do_not_restore_erased_contents(
    options: HBaseOptions, hbase: HBase, tmp_path: Path
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    follow(growing, options)
    before = DeltaTable(growing.lake.uri("messages")).to_pyarrow_table().to_batches()
    address = ["--hbase", f"127.0.0.1:{hbase.thrift_port}", "--hbase-table", options.table]
    arguments = ["--lake", growing.lake.root, "--key", KEY, "--reason", "a test", "--yes", *address]
    assert erase.main(arguments) == ExitCode.OK
    with Client(options) as client:
        write_messages(client, before, options.salts)
    assert MARK not in cells(options)[0]


@pytest.mark.parametrize(
    "followed_before",
    [True, pytest.param(False, marks=pytest.mark.long("the same deletion, one archive later"))],
    ids=["follows at once", "follows with the next archive"],
)
def test_hbase_holds_no_content_of_an_erased_message(
    options: HBaseOptions, hbase: HBase, tmp_path: Path, capsys: pytest.CaptureFixture[str], followed_before: bool
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(50))
    follow(growing, options)
    text, entries = cells(options)
    assert MARK in text
    assert entries == 100
    address = f"127.0.0.1:{hbase.thrift_port}"
    to_hbase = ["--hbase", address, "--hbase-table", options.table] if followed_before else []
    arguments = ["--lake", growing.lake.root, "--key", KEY, "--reason", "a test", "--yes", *to_hbase]
    assert erase.main(arguments) == ExitCode.OK
    if not followed_before:
        growing.write(shop_messages(1, first=50))
        follow(growing, options)
    text, entries = cells(options)
    assert MARK not in text
    assert "COMMITLAKE_ERASED" in text
    assert entries == (98 if followed_before else 100)
    capsys.readouterr()
    code = audit.main(["--lake", growing.lake.root, "--local", "--threads", "1", "--hbase", address,
                       "--hbase-table", options.table])  # fmt: skip
    assert code == ExitCode.OK, capsys.readouterr().out
