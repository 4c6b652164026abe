"""A lake in an object store equals one in a folder row by row, and only one of two commits succeeds."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema

from commitlake.connectors.lake.delta import open_delta_table, storage_options
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage import s3_clients
from commitlake.connectors.storage.errors import S3Error
from commitlake.jobs.query import command as query
from commitlake.schemas.tables.messages import MESSAGES, PARTITION_COLUMNS
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.s3 import S3Server
from tests.support.logs import new_message, open_segment, write_store

ROOT = Path(__file__).parents[3]
SIZE = 1 << 17
PROCESSES, ROUNDS = 6, 5

# In a process of its own, as a user would: a JVM takes its environment, and its jars, when it starts.
ARCHIVED = """
import json, re, sys
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.spark_reader import with_bodies
from commitlake.connectors.storage.s3_options import spark_uri
from commitlake.jobs.archive import command as archive
from commitlake.jobs.arguments.runner import get_spark_session

def rows_of(spark, store, lake, bodies):
    paths = Lake(lake)
    arguments = ["--store", store, "--lake", lake, "--bodies", bodies, "--partition-mib", "1", "--quiet"]
    assert archive.main(arguments) == archive.main(arguments) == 0  # the second finds nothing new
    rows = with_bodies(spark.read.format("delta").load(spark_uri(paths.uri("messages"))), bodies)
    runs = spark.read.format("delta").load(spark_uri(paths.uri("archive_runs"))).select("sequence", "messages", "bytes")
    told = [rows.orderBy("broker", "physical_offset"), runs]
    # A pack has a name of its own.
    alike = lambda text: re.sub("-[0-9a-f]{16}[.]zst", ".zst", text)
    return [[json.loads(alike(row)) for row in frame.toJSON().collect()] for frame in told]

if __name__ == "__main__":
    store, *places = sys.argv[1:]
    spark = get_spark_session("test", Lake(places[-1]).s3)
    found = [rows_of(spark, store, *pair) for pair in zip(places[::2], places[1::2])]
    secret = sys.stdin.read().strip()
    shown = [value for _, value in spark.sparkContext.getConf().getAll() if secret in value]
    print(json.dumps({"found": found, "shown": shown}))
"""

RACER = """
import sys
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress
from commitlake.connectors.lake.committer import commit_messages
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.delta import open_delta_table
uri, name = sys.argv[1:]
for line in sys.stdin:
    sequence = int(line)
    table = open_delta_table(uri)
    commit = ArchiveCommit(sequence, name, {"b": StoreProgress(10 * sequence)}, {"b": CommittedRange(0, 10)})
    file = DataFile(f"store_date=2026-11-20/{name}-{sequence}.parquet", "2026-11-20", 10, 1, '{"numRecords":1}')
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        commit_messages(table, [file], commit)
        print("won", flush=True)
    except ConcurrentRunError:
        print("lost", flush=True)
"""
COMMIT = """
import sys
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress
from commitlake.connectors.lake.committer import commit_run
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
file = DataFile("store_date=2026-11-20/a.parquet", "2026-11-20", 10, 1, '{"numRecords":1}')
commit = ArchiveCommit(1, "run", {"b": StoreProgress(10)}, {"b": CommittedRange(0, 10)})
print(commit_run(Lake(sys.argv[1]), [file], commit, {}).sequence)
"""


@pytest.fixture
def lake(bucket: str) -> Lake:
    """A place for a lake."""
    return Lake(f"s3a://{bucket}/some/lake")


@pytest.fixture
def empty_messages(lake: Lake) -> str:
    """URI of a table `messages` without rows."""
    options = storage_options(lake.uri("messages"))
    DeltaTable.create(
        lake.uri("messages"),
        Schema.from_json(MESSAGES.to_json()),
        partition_by=list(PARTITION_COLUMNS),
        storage_options=options,
    )
    return lake.uri("messages")


def test_only_one_of_concurrent_commits_succeeds(empty_messages: str) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, empty_messages, f"p{number}"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip

    def send_line(line: str) -> Counter[str]:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(f"{line}\n")
            racer.stdin.flush()
        return Counter(racer.stdout.readline().strip() for racer in racers if racer.stdout)

    for sequence in range(1, ROUNDS + 1):
        assert send_line(str(sequence)) == {"ready": PROCESSES}
        assert send_line("go") == {"won": 1, "lost": PROCESSES - 1}
    for racer in racers:
        racer.communicate(timeout=60)
    table = open_delta_table(empty_messages)
    assert table.version() == len(table.file_uris()) == ROUNDS


@pytest.mark.parametrize(("fault", "times"), [(Fault.LOSE_ANSWER, 1), (Fault.ANSWER_503, 2), (Fault.DROP_REQUEST, 2)])
def test_a_commit_succeeds_after_temporary_faults(
    fault: Fault, times: int, empty_messages: str, proxy: FaultProxy, s3_server: S3Server
) -> None:
    proxy.inject(fault, times, r"^PUT .*_delta_log/.*1\.json")
    # In a process of its own: deltalake keeps this one's threads from running, the proxy's among them.
    environment = {**os.environ, **s3_server.environment(proxy.endpoint)}
    command = [sys.executable, "-c", COMMIT, empty_messages.removesuffix("/messages")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert open_delta_table(empty_messages).version() == 1
    assert sum("_delta_log/0" in line and line.startswith("PUT") for line in proxy.seen) == 1 + times


@pytest.mark.parametrize(
    "is_mixed",
    [False, pytest.param(True, marks=pytest.mark.long("a third lake, with its bodies in another place"))],
    ids=["all in the object store", "the bodies alone, too"],
)
def test_a_lake_in_an_object_store_equals_one_in_a_folder(
    tmp_path: Path,
    lake: Lake,
    bucket: str,
    s3_server: S3Server,
    capsys: pytest.CaptureFixture[str],
    is_mixed: bool,
) -> None:
    bodies = [random.Random(number).randbytes(number * 50) for number in range(40)] + [b'{"city": "Berlin"}'] * 15
    new = [new_message(number, body=body) for number, body in enumerate(bodies)]  # as a broker numbers them
    store = write_store(tmp_path / "broker-a" / "store", [(0, open_segment(new, SIZE))])
    folder, mixed = tmp_path / "lake", tmp_path / "mixed"
    bodies_apart = [mixed, f"s3://{bucket}/bodies"] if is_mixed else []
    places = [folder, folder / "bodies", *bodies_apart, lake.root, lake.bodies_root]
    program = tmp_path / "program.py"
    program.write_text(ARCHIVED)
    command = [sys.executable, str(program), str(store), *map(str, places)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, input=s3_server.secret_key, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    in_folder, *others = answer["found"]
    assert len(in_folder[0]) == 55
    assert len(in_folder[1]) == 1
    assert others == [in_folder] * (2 if is_mixed else 1)
    assert not (mixed / "bodies").exists()
    assert answer["shown"] == []
    assert s3_server.secret_key not in done.stdout + done.stderr

    def ask(*arguments: object) -> str:
        assert query.main([*map(str, arguments), "--limit", "1000"]) == 0
        return re.sub(r"-[0-9a-f]{16}\.zst", ".zst", capsys.readouterr().out)

    for arguments in (
        ["--output", "jsonl"],
        ["--output", "csv", "--topic", "orders", "--queue", "1"],
        ["--body", "--output", "jsonl"],
        ["--table", "archive_runs", "--columns", "sequence,messages,bytes"],
    ):
        expected = ask("--lake", folder, *arguments)
        assert expected
        assert ask("--lake", lake.root, *arguments) == expected
        if is_mixed:
            assert ask("--lake", mixed, "--bodies", f"s3://{bucket}/bodies", *arguments) == expected


def test_a_prefix_without_a_lake_is_an_error(lake: Lake, bucket: str, s3_server: S3Server) -> None:
    lake.check_writable()
    with pytest.raises(LakeError, match="is not a lake: expected a Delta table in"):
        lake.table("messages")
    s3_server.client().put_object(Bucket=bucket, Key="some/lake/photo.jpg", Body=b"x")
    with pytest.raises(LakeError, match="holds other objects and no table 'messages'"):
        lake.check_writable()


@pytest.mark.usefixtures("empty_messages")
def test_a_table_of_a_lake_opens(lake: Lake) -> None:
    lake.check_writable()
    assert lake.table("messages").version() == 0
    with pytest.raises(LakeError, match="has no table 'quarantine' yet"):
        lake.table("quarantine")


@pytest.mark.usefixtures("empty_messages")
def test_the_error_for_wrong_credentials_does_not_contain_them(
    lake: Lake, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrongwrongwrong")
    monkeypatch.setattr(s3_clients, "_clients", {})
    for call in (lake.check_writable, lambda: lake.table("messages")):
        with pytest.raises(S3Error, match=r"credentials that the server refuses \(SignatureDoesNotMatch\)"):
            call()
    assert query.main(["--lake", lake.root]) == 2
    said = capsys.readouterr().err
    assert said.startswith("commitlake query: error: s3://")
    assert not any(secret in said for secret in (s3_server.access_key, s3_server.secret_key, "wrongwrongwrong"))


def test_a_missing_bucket_and_an_unreachable_server_are_errors(
    bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.main(["--lake", "s3://nobodys-bucket/lake"]) == 2
    assert "cannot be listed: found no bucket 'nobodys-bucket'. Create the bucket" in capsys.readouterr().err
    monkeypatch.setenv("AWS_REGION", "us-east-1")  # the options go into the environment, which is put back so
    assert query.main(["--lake", f"s3://{bucket}/lake", "--s3-endpoint", "http://127.0.0.1:9"]) == 1
    assert "found no server at the endpoint. Is the endpoint right (--s3-endpoint" in capsys.readouterr().err
    assert query.main(["--lake", f"s3://{bucket}/lake", "--s3-endpoint", "localhost"]) == 2
    assert "expected http://HOST:PORT or https://HOST" in capsys.readouterr().err
