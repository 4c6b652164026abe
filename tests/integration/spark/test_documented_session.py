"""The session with Delta that docs/how-to/spark.md describes reads a lake, and prints what the page shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.jobs.cli import main as cli
from tests.support.snippets import DOCS, blocks_of


@pytest.mark.long("starts a JVM of its own, for code that rarely changes")
def test_the_documented_session_reads_the_lake(tmp_path: Path) -> None:
    store, lake = tmp_path / "broker-a" / "store", tmp_path / "lake"
    fill_shop_store(store, orders=40)
    assert cli.main(["archive", "--store", str(store), "--lake", str(lake), "--local", "--no-quality", "--quiet"]) == 0
    blocks = list(blocks_of(DOCS / "how-to" / "spark.md"))
    at = next(number for number, block in enumerate(blocks) if "delta_jars" in block.text)
    code = blocks[at].text.replace("/data/lake", str(lake))
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert blocks[at + 1].text in done.stdout
