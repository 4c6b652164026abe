"""Arguments of spark-submit: our settings, and those of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.spark.submit_arguments import (
    is_yarn_master,
    make_paths_absolute,
    merge_arguments,
    parse_master,
    parse_settings,
    uses_cluster,
)

SETTINGS = {"spark.master": "local[*]", "spark.jars": "/delta.jar", "spark.driver.memory": "2g"}
OURS = ["--conf", "spark.master=local[*]", "--conf", "spark.jars=/delta.jar", "--conf", "spark.driver.memory=2g"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["pyspark-shell"], ["pyspark-shell"]),
        (["--master", "yarn", "pyspark-shell"], ["--master", "yarn", "pyspark-shell"]),
        (["--jars", "a.jar,b.jar", "pyspark-shell"], ["--jars", "a.jar,b.jar,/delta.jar", "pyspark-shell"]),
        (["--jars=a.jar", "pyspark-shell"], ["--jars=a.jar,/delta.jar", "pyspark-shell"]),
    ],
)
def test_the_users_options_come_last_and_win(given: list[str], expected: list[str]) -> None:
    assert merge_arguments(SETTINGS, given) == [*OURS, *expected]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "local[*]"),
        (["--master", "spark://host:7077"], "spark://host:7077"),
        (["--master=yarn"], "yarn"),
        (["--conf", "spark.master=yarn"], "yarn"),
        (["--conf=spark.master=yarn", "--conf", "spark.master=local[1]"], "local[1]"),
        (["--conf", "spark.x=a=b", "--name", "--master", "yarn"], "yarn"),
    ],
)
def test_the_master_is_the_one_that_spark_submit_takes(given: list[str], expected: str) -> None:
    assert parse_master([*OURS, *given, "pyspark-shell"]) == expected


def test_the_last_setting_of_a_key_wins() -> None:
    assert parse_settings(["--conf", "a=1", "-c", "a=b=c", "--conf=x", "pyspark-shell"]) == {"a": "b=c"}


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--jars", "a.jar,/b.jar,hdfs://c/d.jar", "--archives=env.tar.gz#env", "--name", "a.jar", "pyspark-shell"]
    expected = ["--jars", f"{tmp_path}/a.jar,/b.jar,hdfs://c/d.jar", "--archives", f"{tmp_path}/env.tar.gz#env"]
    assert make_paths_absolute(given) == [*expected, "--name", "a.jar", "pyspark-shell"]


@pytest.mark.parametrize(
    ("arguments", "is_cluster"),
    [
        ("pyspark-shell", False),
        ("--master local[2] pyspark-shell", False),
        ("--master spark://host:7077 pyspark-shell", True),
        ("--conf spark.master=yarn pyspark-shell", True),
    ],
)
def test_a_master_on_other_machines_is_known(
    arguments: str, is_cluster: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert uses_cluster() == is_cluster


def test_the_master_of_an_installation_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert uses_cluster()


@pytest.mark.parametrize(
    ("given", "defaults", "expected"),
    [
        (["--master", "yarn"], {}, True),
        ([], {"spark.master": "yarn"}, True),
        (["--master", "local[2]"], {"spark.master": "yarn"}, False),
        (["--conf", "spark.master=spark://host:7077"], {}, False),
        ([], {}, False),
    ],
)
def test_yarn_is_the_master_of_the_option_or_of_the_defaults(
    given: list[str], defaults: dict[str, str], expected: bool
) -> None:
    assert is_yarn_master([*given, "pyspark-shell"], defaults) is expected
