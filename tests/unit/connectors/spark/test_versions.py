"""The Spark versions that CommitLake works with."""

from __future__ import annotations

import pyarrow as pa
import pytest

from commitlake.connectors.spark import versions as spark_versions
from commitlake.connectors.spark.versions import SparkVersionError, spark_version, to_arrow_schema
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema


@pytest.mark.parametrize("version", ["4.1.4", "4.2.0"])
def test_tested_versions_are_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(spark_versions, "_VERSION", version)
    assert spark_version() == version[:3]


@pytest.mark.parametrize("version", ["3.5.6", "4.0.5", "4.3.0"])
def test_another_version_is_an_error_that_names_the_tested_ones(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(spark_versions, "_VERSION", version)
    with pytest.raises(SparkVersionError, match=rf"Spark {version} is installed, expected 4\.1 or 4\.2: pip install"):
        spark_version()


def test_times_are_in_utc() -> None:
    assert to_arrow_schema(spark_schema(MESSAGES)).field("store_timestamp").type == pa.timestamp("us", "UTC")
