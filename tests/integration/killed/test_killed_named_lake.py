"""An archive into a lake that is named as `catalog.schema`, killed around its commits: no message is lost or doubled.

With TEST_UNITY_CATALOG, it runs against a real server; see `tests.support.unity_catalog`.
"""

from __future__ import annotations

import secrets
import signal
from pathlib import Path

import pytest

from commitlake.connectors.catalog import lake_root_lookup
from commitlake.jobs.audit import command as audit
from commitlake.jobs.catalog import command as catalog
from tests.support.archive_processes import PATIENCE_SECONDS, archive, begin, launched_ahead, ready
from tests.support.growing_stores import GrowingStore, check_same
from tests.support.unity_catalog import catalog_url

WHERE = "threads"
STEPS = ("before the commit", "after the commit", "before the keys are committed")


@pytest.mark.long("the same commits are killed each time in a lake without a name")
@pytest.mark.kills
@pytest.mark.timeout(120 + 60 * len(STEPS))
def test_killed_runs_into_a_named_lake_lose_and_duplicate_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = GrowingStore(tmp_path / "store", seed=23)
    lake = tmp_path / "lake"
    store.grow()
    archive(WHERE, store.root, lake)
    name = f"unity.killed_{secrets.token_hex(6)}"
    with catalog_url() as url:
        monkeypatch.setenv("UNITY_CATALOG_URL", url)
        assert catalog.main(["--lake", str(lake), "--to", name, "--quiet"]) == 0
        with launched_ahead(WHERE, store.root, Path(name), STEPS) as processes:
            for step, launched in zip(STEPS, processes, strict=True):
                store.grow()
                with ready(launched) as process:
                    begin(process)
                    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, step
        archive(WHERE, store.root, Path(name))
        assert lake_root_lookup.find_lake_root(name) == lake.as_uri()
        assert audit.main(["--store", str(store.root), "--broker", "a", "--lake", name, "--local", "--quiet"]) in {0, 3}
    check_same(WHERE, store, lake, tmp_path / "peaceful")
