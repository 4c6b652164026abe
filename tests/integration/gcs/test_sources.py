"""Spark's source and tasks read stores in Google Cloud Storage: the driver plans, and its workers read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.jobs.archive import command as archive
from commitlake.jobs.ship import command as ship
from tests.support.archived import rows_of
from tests.support.store_formats import ROCKETMQ

pytestmark = pytest.mark.usefixtures("usual_priority")

PROGRAM = """
import sys
from commitlake import register
from commitlake.connectors.spark.session import get_session
from commitlake.jobs.archive import command

copy, store, lake = sys.argv[1:]
spark = get_session("a copy in an object store")
register(spark)
rows = [spark.read.format("commitlog").load(place).orderBy("physical_offset").toArrow() for place in (copy, store)]
assert rows[0].num_rows == 60 and rows[0].equals(rows[1])
sys.exit(command.main(["--store", copy, "--broker", "b", "--lake", lake]))
"""


@pytest.mark.long("a session of its own, whose JVM has the credentials; the short test archives with --local")
def test_spark_reads_a_copy(copy: str, tmp_path: Path) -> None:
    store = ROCKETMQ.write(tmp_path / "broker-a" / "store", 60)
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, copy, str(store), str(tmp_path / "of-copy")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert archive.main(["--store", str(store), "--broker", "b", "--lake", str(tmp_path / "of-store"), "--local"]) == 0
    assert rows_of(tmp_path / "of-copy", "messages") == rows_of(tmp_path / "of-store", "messages")
