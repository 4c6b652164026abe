"""Spark's sources and tasks read copies in object stores and HDFS: the driver plans, and its workers read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.reading.errors import CommitLogError
from commitlake.connectors.storage.uris import parse_s3_uri
from commitlake.jobs.archive import command as archive
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from tests.support.archived import rows_of
from tests.support.copy_places import S3Place, at, each_place
from tests.support.index_entry_rows import read_index_rows, read_queue_rows
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.store_formats import ROCKETMQ

pytestmark = pytest.mark.usefixtures("usual_priority")

MESSAGES = """
import sys
from commitlake import register
from commitlake.connectors.spark.session import get_session
from commitlake.jobs.archive import command

copy, store, lake = sys.argv[1:]
spark = get_session("a copy")
register(spark)
rows = [spark.read.format("commitlog").load(place).orderBy("physical_offset").toArrow() for place in (copy, store)]
assert rows[0].num_rows == 60 and rows[0].equals(rows[1])
sys.exit(command.main(["--store", copy, "--broker", "b", "--lake", lake]))
"""

QUEUES_AND_INDEXES = """
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


def run(program: str, *arguments: object) -> None:
    """Run a program with a session of its own, whose JVM has the credentials."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long("a session of its own; other tests archive with --local")
@each_place(without={S3Place: "Spark reads all its stores there in tests of lakes in S3"})
def test_spark_reads_a_copy(copy: str, tmp_path: Path) -> None:
    store = ROCKETMQ.write(tmp_path / "broker-a" / "store", 60)
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    run(MESSAGES, copy, store, tmp_path / "of-copy")
    assert archive.main(["--store", str(store), "--broker", "b", "--lake", str(tmp_path / "of-store"), "--local"]) == 0
    assert rows_of(tmp_path / "of-copy", "messages") == rows_of(tmp_path / "of-store", "messages")


@pytest.mark.long("a session of its own; the short test reads without Spark")
@at(S3Place)
def test_spark_reads_queues_and_indexes_of_a_copy(copy: str, tmp_path: Path) -> None:
    store = write_indexed_store(tmp_path / "store", count=330)
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    newest = max((store / "index").iterdir()).name
    run(QUEUES_AND_INDEXES, copy, store, newest)


@at(S3Place)
def test_rows_of_copies_equal_those_of_the_stores(
    place: S3Place, copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = {
        f"{copy}/rocketmq": write_indexed_store(tmp_path / "rocketmq", count=330),
        f"{copy}/jmq": write_jmq_store(tmp_path / "jmq", count=330),
    }
    for shipped, store in stores.items():
        assert ship.main(["--store", str(store), "--to", shipped, "--once"]) == 0
        assert read_queue_rows(shipped, broker="b") == read_queue_rows(store, broker="b") != []
        capsys.readouterr()
        printed = []
        for root in (shipped, str(store)):
            assert dump.main([root, "--consumequeue", "--topic", "topic-1"]) == 0
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
    uri = parse_s3_uri(copy)
    place.server.client().delete_object(Bucket=uri.bucket, Key=uri.key(f"consumequeue/topic-0/0/{0:020}"))
    with pytest.raises(CommitLogError, match=f"{copy}/consumequeue/topic-0/0/0+, bytes 0 to 320: missing"):
        read_queue_rows(copy)
    assert dump.main([copy, "--consumequeue"]) == 2
    assert f"{copy}/consumequeue/topic-0/0/{0:020}: expected 320 bytes, found no such object" in capsys.readouterr().err
