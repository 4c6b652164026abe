"""The source `hbase` without happybase."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from commitlake.connectors.hbase import missing_client, register_hbase
from commitlake.connectors.hbase.missing_client import MissingHBaseDataSource
from commitlake.schemas.errors import UsageError


@pytest.mark.parametrize("use", ["schema", "writer", "streamWriter"])
def test_each_use_names_the_extra(use: str) -> None:
    source = MissingHBaseDataSource({})
    arguments = () if use == "schema" else (StructType(), False)
    with pytest.raises(UsageError, match=r"needs the package happybase.*pip install 'commitlake\[hbase\]'"):
        getattr(source, use)(*arguments)


def test_register_chooses_the_source_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []

    class Sources:
        def register(self, source: type) -> None:
            registered.append(source.__name__)

    class Session:
        dataSource = Sources()  # noqa: N815 (Spark's name)

    register_hbase(Session())  # type: ignore[arg-type]
    monkeypatch.setattr("commitlake.connectors.hbase.find_spec", lambda _: None)
    register_hbase(Session())  # type: ignore[arg-type]
    assert registered == ["HBaseDataSource", missing_client.MissingHBaseDataSource.__name__]
