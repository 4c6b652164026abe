"""Jobs and reads in a session of Spark Connect, whose JVM and Python workers belong to a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

import commitlake
from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.jobs.archive import command as archive
from commitlake.jobs.rebuild import command as rebuild
from tests.servers.broker_lite import BrokerLite
from tests.servers.spark_connect import SparkConnect
from tests.support.jmq_stores import write_jmq_store
from tests.support.local_archives import MESSAGES, SEGMENT_BYTES, archive_here, check_equal
from tests.support.served_stores import files_of
from tests.support.wheel_environments import bare_python

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 300
pytestmark = pytest.mark.timeout(900)
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import commitlake
from commitlake import register
from commitlake.connectors.spark.runner import SparkRunner

url, folder = sys.argv[1:]  # the server has another working folder
spark = SparkSession.builder.remote(url).getOrCreate()
register(spark)
rows = spark.read.format("commitlog").load(f"{folder}/store")
rows.createOrReplaceTempView("log")
found = {
    "rows": rows.count(),
    "topics": spark.sql("SELECT count(DISTINCT topic) AS n FROM log").collect()[0].n,
    "queued": spark.read.format("consumequeue").load(f"{folder}/store").count(),
    "delta": spark.read.format("delta").load(f"{folder}/here/messages").count(),
}
lake = commitlake.open(f"{folder}/here", spark)
found["bodies"] = lake.messages(body="bytes").where("body IS NOT NULL AND body_error IS NULL").count()
runner = SparkRunner(spark)
count = runner.task_counter()
found["results"] = sorted(result for _, result in runner.run(abs, [-1, -2, -3]))
found["cores"], found["tasks"] = runner.cores, count()
try:
    list(runner.run(json.loads, ["{"]))
except json.JSONDecodeError as error:
    found["error"] = error.msg
print(json.dumps(found))
"""

JOBS = """
import io, re, sys
from contextlib import redirect_stdout
from pyspark.sql import SparkSession
import commitlake
from commitlake.jobs.cli.main import main

url, lake, file = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()

def answer(*words):
    output = io.StringIO()
    with redirect_stdout(output):
        code = main([*words, "--lake", lake, "--quiet"])
    assert code == 0, words
    return re.sub('"time_lag_s":[0-9.]+', "", output.getvalue())  # until now

for words in (
    ("lag", "--format", "json"),
    ("offsets", "--group", "shipping-service", "--consume-from", "2020-01-01", "--format", "json"),
    ("lineage", "--keys-file", file, "--format", "json"),
    ("dlq", "--json"),
    ("journeys", "--from", "2020-01-01", "--to", "2100-01-01", "--format", "json"),
):
    here = answer(*words)
    assert len(here) > 100, (words, here)
    assert answer(*words, "--spark") == here, words
with open(file) as lines:
    keys = lines.read().split()
here = commitlake.open(lake).lineage(keys=keys).to_pylist()
opened = commitlake.open(lake, spark)
assert opened.paths.root.startswith("/")
there = opened.lineage(keys=keys).toArrow().to_pylist()
assert sorted(there, key=repr) == sorted(here, key=repr)
print(len(here))
"""

SOURCES = """
import json, sys
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from commitlake import register

url, folder, namesrv = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
register(spark)
found = {}
log = spark.read.format("commitlog").load(f"{folder}/store")
index = spark.read.format("indexfile").load(f"{folder}/store")
joined = index.join(log, "physical_offset", "left_anti")
found["entries"], found["strays"] = index.count(), joined.count()
stream = spark.readStream.format("commitlog").load(f"{folder}/store").writeStream
stream = stream.format("delta").option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
for attempt in range(4):
    try:
        stream.start(f"{folder}/streamed").awaitTermination()
        break
    except StreamingQueryException as error:  # on a busy machine, ten seconds are too few for a process
        if "connect back" not in str(error) or attempt == 3:
            raise
found["streamed"] = spark.read.format("delta").load(f"{folder}/streamed").count()
journal = spark.read.format("journal").load(f"{folder}/jmq")
found["journal"] = journal.count()
found["jmq queued"] = spark.read.format("consumequeue").load(f"{folder}/jmq").count()
stream = spark.readStream.format("journal").load(f"{folder}/jmq").writeStream.format("delta")
stream = stream.option("checkpointLocation", f"{folder}/jmq-checkpoint").trigger(availableNow=True)
stream.start(f"{folder}/jmq-streamed").awaitTermination()
found["journal streamed"] = spark.read.format("delta").load(f"{folder}/jmq-streamed").count()
given = {"namesrv": namesrv, "topic": "Copied"}
bodies = spark.createDataFrame([(bytes([65 + number]),) for number in range(9)], "body binary")
bodies.write.format("rocketmq").mode("append").options(**given).save()
read = spark.read.format("rocketmq").options(namesrv=namesrv, topics="Copied", body="stored").load()
found["sent"] = sorted(bytes(row.body).decode() for row in read.select("body").collect())
stream = spark.readStream.format("rocketmq").options(namesrv=namesrv, topics="Copied", startingOffsets="earliest")
stream = stream.load().writeStream.format("delta").trigger(availableNow=True)
stream.option("checkpointLocation", f"{folder}/topic-checkpoint").start(f"{folder}/topic").awaitTermination()
found["topic streamed"] = spark.read.format("delta").load(f"{folder}/topic").count()
print(json.dumps(found))
"""
JMQ_MESSAGES = 600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """A server for all tests here."""
    with SparkConnect(tmp_path_factory.mktemp("connect") / "server") as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a broker's store, and a lake that was archived on this machine."""
    return archive_here(tmp_path_factory.mktemp("place"))


def submit(server: SparkConnect, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a job with relative paths, as an operator does; there is no Java that it could start."""
    return subprocess.run(
        [str(ROOT / "spark-submit.sh"), "--remote", server.url, *arguments],
        cwd=folder,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.long("tasks and sources run over Spark Connect each time")
def test_an_archive_equals_a_local_one(server: SparkConnect, place: Path) -> None:
    done = submit(server, place, "archive", "--store", "store", "--broker", "a", "--lake", "there", "--quiet")
    assert done.returncode == 0, done.stderr
    check_equal(place / "there", place / "here")


def test_a_program_reads_logs_and_runs_tasks(server: SparkConnect, place: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, server.url, str(place)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [found[name] for name in ("rows", "queued", "delta", "bodies")] == [MESSAGES] * 4
    assert found["topics"] > 1
    assert (found["results"], found["cores"]) == ([1, 2, 3], 2)
    done_tasks, known_tasks = found["tasks"]
    assert done_tasks == known_tasks > 0
    assert found["error"].startswith("Expecting property name")


@pytest.mark.long("the same tasks run each time in a session")
def test_jobs_with_tasks_on_spark_answer_as_without(server: SparkConnect, tmp_path: Path) -> None:
    fill_shop_store(tmp_path / "shop", orders=8)
    places = ["--store", str(tmp_path / "shop"), "--lake", str(tmp_path / "lake")]
    assert archive.main([*places, "--local", "--quiet", "--no-quality"]) == 0
    rows = commitlake.open(str(tmp_path / "lake")).messages(columns=["keys"]).to_pylist()
    keys = sorted({key for row in rows for key in row["keys"] or ()})
    (tmp_path / "keys.txt").write_text("\n".join([*keys, "unknown"]))
    # By a relative path: the server has another working folder.
    command = [sys.executable, "-c", JOBS, server.url, "lake", "keys.txt"]
    environment = {**os.environ, "SPARK_REMOTE": server.url}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > len(keys) > 5


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("query", "--lake", "here", "--spark"), 2, "does not show the plan of a SELECT"),
        pytest.param(
            ("tps", "--lake", "here", "--engine", "spark"),
            2,
            "does not show the plan of a SELECT",
            marks=pytest.mark.long("refused by the same check as a query each time"),
        ),
        (("archive", "--store", "store", "--broker", "a", "--lake", "here", "--follow"), 2, "leave both out"),
    ],
)
def test_what_spark_connect_lacks_is_refused(
    server: SparkConnect, place: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = submit(server, place, *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long("the same check has unit tests")
def test_workers_without_the_package_are_named(place: Path, tmp_path: Path) -> None:
    bare = bare_python()
    with SparkConnect(tmp_path / "server", python=bare) as other:
        done = submit(other, place, "archive", "--store", "store", "--broker", "a", "--lake", "nowhere", "--quiet")
    assert done.returncode == 2, done.stderr
    assert f"({bare}) lacks " in done.stderr
    assert "commitlake (ModuleNotFoundError" in done.stderr
    assert "PYSPARK_PYTHON" in done.stderr
    assert not (place / "nowhere" / "messages").exists()


@pytest.mark.long("a source is read over Spark Connect each time, and streams run without it")
def test_other_sources_are_read_and_written(server: SparkConnect, place: Path, tmp_path: Path) -> None:
    write_jmq_store(place / "jmq", JMQ_MESSAGES)
    with BrokerLite(tmp_path / "broker") as broker:
        command = [sys.executable, "-c", SOURCES, server.url, str(place), broker.name_server_address]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("entries") > MESSAGES
    assert found == {
        "strays": 0,
        "streamed": MESSAGES,
        **dict.fromkeys(("journal", "jmq queued", "journal streamed"), JMQ_MESSAGES),
        "sent": list("ABCDEFGHI"),
        "topic streamed": 9,
    }


@pytest.mark.long("an archive has the same way to the server, each time")
def test_other_jobs_run_at_the_server(server: SparkConnect, place: Path) -> None:
    archive_here(place / "other")
    messages = DeltaTable(str(place / "other" / "here" / "messages"))
    (message_id,) = messages.to_pyarrow_dataset().head(1).column("msg_id").to_pylist()
    for arguments in (
        ("verify", "store", "--quiet"),
        ("rebuild", "store", "--out", "rebuilt-there"),
        ("restore", "--lake", "here", "--out", "restored", "--segment-size", str(SEGMENT_BYTES), "--spark", "--quiet"),
        ("audit", "--lake", "here", "--quiet"),
        ("query", "--lake", "here", "--grep", "a", "--spark", "--limit", "1"),
        ("archive", "--store", "store", "--broker", "a", "--lake", "later", "--no-edges", "--quiet"),
        ("archive", "--lake", "later", "--backfill", "edges", "--quiet"),
        ("erase", "--lake", "other/here", "--id", message_id, "--reason", "a test", "--yes", "--spark", "--quiet"),
        ("maintain", "--lake", "other/here", "--spark", "--quiet"),
        ("demo", "--orders", "20", "--quiet"),
    ):
        done = submit(server, place, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    check_equal(place / "later", place / "here")
    assert DeltaTable(str(place / "other" / "here" / "erasures")).to_pyarrow_table().num_rows
    assert rebuild.main([str(place / "store"), "--out", str(place / "rebuilt-here"), "--local", "--quiet"]) == 0
    there, here = (files_of(place / f"rebuilt-{where}" / "consumequeue") for where in ("there", "here"))
    assert here
    assert there == here
