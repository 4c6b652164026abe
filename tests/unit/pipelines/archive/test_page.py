"""The page of a run: only committed runs have one, and it agrees with the exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.archive.run import default_page_writer
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.schemas.errors import ConcurrentRunError
from tests.support.lakes import GrowingLake, shop_messages


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store that passes the suites, and no lake yet."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    return growing


def config_of(growing: GrowingLake, hbase: HBaseOptions | None = None) -> Config:
    """Return the settings of a run that is judged and shown."""
    return Config(str(growing.store), growing.lake, page=default_page_writer(growing.lake), hbase=hbase)


def page_of(growing: GrowingLake) -> Path:
    """Return the path of the page."""
    return Path(growing.lake.root) / "quality.html"


def test_a_run_overtaken_by_another_leaves_no_page(growing: GrowingLake) -> None:
    config = config_of(growing)
    work = find_archive_work(config.store, None, config.lake)
    growing.archive()
    with pytest.raises(ConcurrentRunError):
        run_archive(HERE, config, work)
    assert not page_of(growing).exists()


def test_the_page_reports_that_hbase_is_behind_after_an_hbase_error(growing: GrowingLake) -> None:
    unreachable = HBaseOptions.of_address("127.0.0.1:1", connectSeconds="0")
    with pytest.raises(HBaseError):
        run_archive(HERE, config_of(growing, unreachable))
    shown = page_of(growing).read_text()
    assert re.search(r"<title>.*: Archived.*; HBase does not have it yet, the next run tries again</title>", shown)


def test_the_page_has_the_verdict_of_the_run(growing: GrowingLake) -> None:
    result = run_archive(HERE, config_of(growing))
    assert result.messages == 20
    verdict = result.verdict.text[:1].upper() + result.verdict.text[1:]
    assert f"<title>Archive run: {verdict}</title>" in page_of(growing).read_text()
