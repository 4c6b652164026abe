"""A JMQ store's archive, as JMQ's own is: metadata in HBase, where a business id finds it, and bodies elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlake.jobs.archive import command as archive
from commitlake.jobs.audit import command as audit
from commitlake.jobs.query import command as query
from tests.servers.hbase import HBase
from tests.support.jmq_stores import write_jmq_store
from tests.support.journals import new_message

TABLE = "jmq_by_jobs"
COUNT = 300


@pytest.fixture(scope="module")
def lake(hbase: HBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of a JMQ store that HBase has followed."""
    root = tmp_path_factory.mktemp("jmq")
    store = write_jmq_store(root / "store", COUNT)
    to_hbase = ["--hbase", f"127.0.0.1:{hbase.thrift_port}", "--hbase-option", f"table={TABLE}"]
    arguments = ["--store", str(store), "--broker", "a", "--lake", str(root / "lake"), "--local"]
    assert archive.main([*arguments, *to_hbase]) == 0
    return root / "lake"


def ask(lake: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    """Return the rows that a query prints."""
    capsys.readouterr()
    assert query.main(["--lake", str(lake), "--output", "jsonl", "--quiet", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def via_hbase(hbase: HBase) -> list[str]:
    """Ask HBase."""
    return ["--via", "hbase", "--hbase", f"127.0.0.1:{hbase.thrift_port}", "--hbase-table", TABLE]


@pytest.mark.parametrize("with_body", [[], ["--body"]])
def test_a_business_id_finds_its_message_in_hbase_as_in_the_lake(
    lake: Path, hbase: HBase, capsys: pytest.CaptureFixture[str], with_body: list[str]
) -> None:
    asked = ["--key", new_message(7).business_id, *with_body]
    found = ask(lake, capsys, *asked)
    assert len(found) == 1
    assert ask(lake, capsys, *asked, *via_hbase(hbase)) == found


def test_an_id_and_a_topic_find_the_same_in_both(lake: Path, hbase: HBase, capsys: pytest.CaptureFixture[str]) -> None:
    (message,) = ask(lake, capsys, "--key", new_message(9).business_id)
    for asked in (["--id", str(message["msg_id"])], ["--topic", "rare", "--limit", "100"]):
        found = ask(lake, capsys, *asked)
        assert found
        assert ask(lake, capsys, *asked, *via_hbase(hbase)) == found


def test_the_audit_compares_hbase_with_the_journal(
    lake: Path, hbase: HBase, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ["--hbase", f"127.0.0.1:{hbase.thrift_port}", "--hbase-table", TABLE]
    store = ["--store", str(lake.parent / "store"), "--broker", "a"]
    capsys.readouterr()
    assert audit.main(["--lake", str(lake), *store, *server, "--local", "--quiet", "--output", "json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)["rows"]
    assert {"store", "hbase"} <= {side for verdict in verdicts for side in (verdict["expected"], verdict["found"])}
    assert all(verdict["compared"] and verdict["differing"] == 0 for verdict in verdicts)
