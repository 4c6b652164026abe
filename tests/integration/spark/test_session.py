"""Settings of a job's session: an existing session's come first, then the user's, then ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.spark.jars import delta_jars
from commitlake.jobs.arguments.runner import get_spark_session

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, sys
from commitlake.jobs.arguments.runner import get_spark_session
spark = get_spark_session("test")
spark.range(3).write.format("delta").save(sys.argv[1])
names = ["spark.app.name", "spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions",
         "spark.sql.session.timeZone", "spark.ui.enabled"]
settings = {name: spark.conf.get(name) for name in names}
print(json.dumps({"rows": spark.read.format("delta").load(sys.argv[1]).count(), **settings}))
"""
OURS = {
    "rows": 3,
    "spark.app.name": "commitlake test",
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
}


def run(command: list[str], folder: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """Return the program's output, and its standard error."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **environment}
    here = folder / "here"
    here.mkdir()
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [*command, str(program), str(folder / "table")],
        cwd=here,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert list(here.iterdir()) == []  # no warehouse and no metastore in the working directory
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.long("what is passed to Spark has unit tests, and a cluster's job is submitted with options each time")
def test_a_job_starts_its_own_quiet_session(tmp_path: Path) -> None:
    assert run([sys.executable], tmp_path, SPARK_HOME="/another/spark") == (OURS, "")


@pytest.mark.long("what is passed to Spark has unit tests, and a cluster's job is submitted with options each time")
def test_options_for_spark_submit_win(tmp_path: Path) -> None:
    options = "--master local[1] --driver-memory 700m --name mine --conf spark.sql.shuffle.partitions=3 pyspark-shell"
    found, said = run([sys.executable], tmp_path, PYSPARK_SUBMIT_ARGS=options)
    theirs = {"spark.master": "local[1]", "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "3"}
    assert (found, said) == (OURS | theirs, "")


@pytest.mark.long("what is passed to Spark has unit tests, and a cluster's job is submitted with options each time")
def test_settings_of_spark_submit_win_and_ours_complete_them(tmp_path: Path) -> None:
    submit = str(Path(sys.executable).parent / "spark-submit")
    options = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=3", "--driver-memory", "700m"]
    jars = ["--jars", ",".join(map(str, delta_jars()))]
    found, _ = run([submit, *options, *jars], tmp_path)
    theirs = {"spark.master": "local[1]", "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "3"}
    assert found == OURS | theirs


@pytest.mark.long("what is passed to Spark has unit tests, and a cluster's job is submitted with options each time")
def test_the_settings_of_an_installed_spark_are_kept(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "spark-defaults.conf").write_text(
        "# set by an administrator\nspark.master  local[1]\nspark.driver.memory=700m\nspark.sql.shuffle.partitions 3\n"
    )
    found, said = run([sys.executable], tmp_path, SPARK_HOME=str(home))
    theirs = {"spark.master": "local[1]", "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "3"}
    assert (found, said) == (OURS | theirs, "")


def test_an_existing_session_is_used_unchanged(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    monkeypatch.setattr("commitlake.connectors.spark.session.SETTINGS", {"spark.sql.shuffle.partitions": "7"})
    try:
        assert get_spark_session("another") is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "8")
