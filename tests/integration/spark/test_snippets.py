"""The Python code of README and documentation that needs Spark runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.jobs.cli import main as cli
from tests.support.snippets import Block, blocks_of, pages

BLOCKS = [
    block for page in pages() for block in blocks_of(page) if block.language == "python" and block.why == "needs Spark"
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and its lake."""
    folder = tmp_path_factory.mktemp("snippets")
    fill_shop_store(folder / "broker-a" / "store", orders=8)
    store, lake = str(folder / "broker-a" / "store"), str(folder / "lake")
    assert cli.main(["archive", "--store", store, "--lake", lake, "--local", "--quiet"]) == 0
    assert cli.main(["archive", "--lake", lake, "--backfill", "lag_minutes", "--quiet"]) == 0
    return folder


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 3


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{block.page}:{block.line}" for block in BLOCKS])
def test_the_code_runs(block: Block, spark: SparkSession, demo: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(demo, tmp_path / "demo"))
    text = block.text.replace("/data/rocketmq/store", str(root / "broker-a" / "store"))
    text = text.replace("/mnt/brokers/", f"{root}/").replace("/data/lake", str(root / "lake"))
    names: dict[str, object] = {"spark": spark}
    exec(compile(text, block.page, "exec"), names)
    query = names.get("query")
    if isinstance(query, StreamingQuery):
        assert query.awaitTermination(120)
        assert query.exception() is None
