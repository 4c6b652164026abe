"""The jobs with HBase: archive lets it follow, query asks it, audit compares it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.hbase.cells import VALUE
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.keys import MESSAGE, prefix_end
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.jobs.archive import command as archive
from commitlake.jobs.audit import command as audit
from commitlake.jobs.query import command as query
from tests.servers.hbase import HBase
from tests.support.logs import messages

OPTIONS = StoreOptions(segment_size_bytes=1 << 16, index_slots=100, index_entries=400)
TABLE = "by_jobs"


@pytest.fixture(scope="module")
def place(hbase: HBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a lake that HBase has followed over two runs."""
    root = tmp_path_factory.mktemp("jobs")
    sent = messages(300)
    for part in (sent[:100], sent[100:]):
        with MessageStore.open(root / "store", OPTIONS) as store:
            for message in part:
                store.put(message)
        assert run_archive(root, hbase) == 0
    return root


def run_archive(root: Path, hbase: HBase) -> int:
    """Return the exit code, output and errors of an archive run."""
    to_hbase = ["--hbase", f"127.0.0.1:{hbase.thrift_port}", "--hbase-option", f"table={TABLE}"]
    arguments = ["--store", str(root / "store"), "--broker", "a", "--lake", str(root / "lake"), "--local"]
    return archive.main([*arguments, *to_hbase])


def ask(place: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    """Return the rows that a query prints."""
    capsys.readouterr()
    assert query.main(["--lake", str(place / "lake"), "--output", "jsonl", "--quiet", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "asked", [["--key", "order-7"], ["--topic", "topic-1", "--limit", "20"], ["--id"], ["--key", "nothing"]]
)
def test_queries_by_hbase_and_by_delta_print_the_same(
    place: Path, hbase: HBase, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    if asked == ["--id"]:
        asked = ["--id", str(ask(place, capsys, "--key", "order-9")[0]["msg_id"])]
    found = ask(place, capsys, *asked)
    server = f"127.0.0.1:{hbase.thrift_port}"
    assert ask(place, capsys, *asked, "--via", "hbase", "--hbase", server, "--hbase-table", TABLE) == found
    assert bool(found) == ("nothing" not in asked)


def delete_a_message(hbase: HBase) -> None:
    """Delete the first message that is still in HBase."""
    with Client(HBaseOptions(host="127.0.0.1", port=hbase.thrift_port, table=TABLE)) as client:
        pages = (
            page
            for salt in range(16)
            for page in client.scan(bytes((salt,)) + MESSAGE, prefix_end(bytes((salt,)) + MESSAGE), page_rows=1)
        )
        client.delete([next(pages)[0].key], VALUE.partition(b":")[0], 1 << 62)


def audit_arguments(place: Path, hbase: HBase) -> list[str]:
    """Return the arguments of an audit that compares lake and HBase."""
    server = ["--hbase", f"127.0.0.1:{hbase.thrift_port}", "--hbase-table", TABLE]
    return ["--lake", str(place / "lake"), *server, "--no-bodies", "--quiet", "--output", "json"]


def test_the_audit_finds_one_message_missing_in_hbase(
    place: Path, hbase: HBase, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*audit_arguments(place, hbase), "--local"]
    assert audit.main(arguments) == 0
    capsys.readouterr()
    delete_a_message(hbase)
    assert audit.main(arguments) == 3
    verdicts = {verdict["found"]: verdict for verdict in json.loads(capsys.readouterr().out)["rows"]}
    assert verdicts["hbase"]["differing"] == 1
    assert verdicts["messages"]["differing"] == 0


@pytest.mark.long("a missing message is found without Spark each time")
@pytest.mark.usefixtures("spark")
def test_the_audit_on_spark_prints_the_same(place: Path, hbase: HBase, capsys: pytest.CaptureFixture[str]) -> None:
    delete_a_message(hbase)
    capsys.readouterr()
    printed = []
    for where in ((), ("--local",)):
        assert audit.main([*audit_arguments(place, hbase), *where]) == 3
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_the_archive_commits_while_hbase_is_down(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MessageStore.open(place / "store", OPTIONS) as store:
        for message in messages(20, seed=5):
            store.put(message)
    nobody = ["--hbase", "127.0.0.1:1", "--hbase-option", "retrySeconds=1", "--hbase-option", "connectSeconds=1"]
    arguments = ["--store", str(place / "store"), "--broker", "a", "--lake", str(place / "lake"), "--local", *nobody]
    assert archive.main(arguments) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert len(ask(place, capsys, "--limit", "0")) == 320
