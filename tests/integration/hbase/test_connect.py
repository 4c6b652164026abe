"""The source `hbase` in a session of Spark Connect: rows are written and read by the server's workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.hbase.options import HBaseOptions
from tests.servers.spark_connect import SparkConnect
from tests.support.hbase_tables import append, message_rows, rare_rows

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from commitlake import register

url, table, given, checkpoint = sys.argv[1:]
given = json.loads(given)
spark = SparkSession.builder.remote(url).getOrCreate()
register(spark)
messages = spark.read.format("delta").load(table)
messages.limit(100).write.format("hbase").mode("append").options(**given).save()
stream = spark.readStream.format("delta").load(table).writeStream.format("hbase").options(**given)
stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
columns = ["broker", "physical_offset", "topic", "queue_offset", "unique_key"]
read = spark.read.format("hbase").options(**given).load().select(columns)
wanted = messages.select(columns)
print(json.dumps([read.count(), read.exceptAll(wanted).count(), wanted.exceptAll(read).count()]))
"""


@pytest.mark.long("the same reads and writes run in a session of this process each time")
@pytest.mark.timeout(600)
def test_rows_are_written_and_read_at_the_server(options: HBaseOptions, tmp_path: Path) -> None:
    table = str(tmp_path / "messages")
    rows = message_rows(500) + rare_rows()
    append(table, rows)
    given = {"host": options.host, "port": str(options.port), "table": options.table}
    with SparkConnect(tmp_path / "server") as server:
        command = [sys.executable, "-c", PROGRAM, server.url, table, json.dumps(given), str(tmp_path / "checkpoint")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [len(rows), 0, 0]
