"""Settings of an installed Spark's `spark-defaults.conf`."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.spark.spark_defaults import (
    NAME,
    configuration_folder,
    drop_default_settings,
    parse_defaults,
    read_defaults,
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("spark.master yarn", {"spark.master": "yarn"}),
        ("  spark.master\t=  yarn  ", {"spark.master": "yarn"}),
        ("spark.master:spark://host:7077", {"spark.master": "spark://host:7077"}),
        ("spark.driver.extraJavaOptions -Da=b -Dc=d", {"spark.driver.extraJavaOptions": "-Da=b -Dc=d"}),
        ("spark.jars =", {"spark.jars": ""}),
        ("# spark.master yarn", {}),
        ("! spark.master yarn", {}),
        ("", {}),
        ("alone", {}),
    ],
)
def test_a_line_is_parsed_as_java_properties(line: str, expected: dict[str, str]) -> None:
    assert parse_defaults(line) == expected


def test_the_folder_is_that_of_the_variable_or_of_the_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert configuration_folder() is None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "missing"))
    assert configuration_folder() is None
    (tmp_path / "spark" / "conf").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert configuration_folder() == tmp_path / "spark" / "conf"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "other"))
    assert configuration_folder() == tmp_path / "other"


def test_a_missing_file_has_no_settings(tmp_path: Path) -> None:
    assert read_defaults(None) == {}
    assert read_defaults(tmp_path) == {}
    (tmp_path / NAME).write_bytes(b"spark.master yarn\nspark.app.name \xff\n")
    assert read_defaults(tmp_path)["spark.master"] == "yarn"


def test_lists_are_joined_without_repetition() -> None:
    ours = {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension", "spark.jars": "a.jar"}
    theirs = {"spark.sql.extensions": "x.Y,io.delta.sql.DeltaSparkSessionExtension", "spark.jars": ""}
    assert drop_default_settings(ours, theirs) == {
        "spark.sql.extensions": "x.Y,io.delta.sql.DeltaSparkSessionExtension",
        "spark.jars": "a.jar",
    }


def test_options_of_executors_are_added_to_those_of_the_file() -> None:
    key = "spark.executor.extraJavaOptions"
    assert drop_default_settings({key: "-Da=b -Dc=d"}, {key: "--add-opens x --add-opens y"}) == {
        key: "-Da=b -Dc=d --add-opens x --add-opens y"
    }
    driver = "spark.driver.extraJavaOptions"
    assert drop_default_settings({driver: "-XX:+UseParallelGC"}, {driver: "-XX:+UseZGC"}) == {}
