"""The sources `consumequeue` and `indexfile`, and `dump`, read copies of queues and indexes in S3."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.reading.errors import CommitLogError
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from tests.servers.s3 import S3Server
from tests.support.index_entry_rows import read_index_rows, read_queue_rows
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store

pytestmark = pytest.mark.usefixtures("usual_priority")

PROGRAM = """
import sys
from commitlake import register
from commitlake.connectors.spark.session import get_session

copy, store, newest = sys.argv[1:]
spark = get_session("queues and indexes in an object store")
register(spark)

def rows(source, place, *order, **options):
    return spark.read.format(source).options(broker="b", **options).load(place).orderBy(*order)

def check(of_copy, of_store, least):
    of_copy, of_store = of_copy.toArrow(), of_store.toArrow()
    assert of_copy.num_rows > least and of_copy.equals(of_store), (of_copy.num_rows, of_store.num_rows)

queue, options = ("topic", "queue_id", "queue_offset"), {"maxPartitionBytes": "3000000"}
check(rows("consumequeue", copy, *queue, **options), rows("consumequeue", store, *queue), 300)
of_store = rows("indexfile", store, "file", "entry").where(f"file <> '{newest}'")
check(rows("indexfile", copy, "file", "entry", **options), of_store, 600)
"""


def test_rows_of_copies_equal_those_of_the_stores(
    s3_server: S3Server, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = {
        f"s3://{bucket}/rocketmq": write_indexed_store(tmp_path / "rocketmq", count=330),
        f"s3://{bucket}/jmq": write_jmq_store(tmp_path / "jmq", count=330),
    }
    for copy, store in stores.items():
        assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
        assert read_queue_rows(copy, broker="b") == read_queue_rows(store, broker="b") != []
        capsys.readouterr()
        printed = []
        for place in (copy, str(store)):
            assert dump.main([place, "--consumequeue", "--topic", "topic-1"]) == 0
            printed.append(capsys.readouterr())
        assert printed[0] == printed[1]
        assert len(printed[0].out.splitlines()) > 100
    copy, store = next(iter(stores.items()))
    newest = max((store / "index").iterdir()).name
    for content in ("entries", "slots", "headers"):
        rows = [row for row in read_index_rows(store, broker="b", content=content) if row["file"] != newest]
        assert read_index_rows(copy, broker="b", content=content) == rows != []
    assert dump.main([copy, "--index"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(read_index_rows(copy))
    s3_server.client().delete_object(Bucket=bucket, Key=f"rocketmq/consumequeue/topic-0/0/{0:020}")
    with pytest.raises(CommitLogError, match=f"{copy}/consumequeue/topic-0/0/0+, bytes 0 to 320: missing"):
        read_queue_rows(copy)
    assert dump.main([copy, "--consumequeue"]) == 2
    assert f"{copy}/consumequeue/topic-0/0/{0:020}: expected 320 bytes, found no such object" in capsys.readouterr().err


@pytest.mark.long("a session of its own, whose JVM has the credentials; the short test reads without Spark")
def test_spark_reads_queues_and_indexes_of_a_copy(bucket: str, tmp_path: Path) -> None:
    store, copy = write_indexed_store(tmp_path / "store", count=330), f"s3://{bucket}/copy"
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    newest = max((store / "index").iterdir()).name
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, copy, str(store), newest], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
