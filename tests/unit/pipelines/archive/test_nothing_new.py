"""A run without new messages completes an earlier unfinished run."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.message_keys.progress import followed_version
from tests.support.lakes import GrowingLake, shop_messages


@pytest.mark.parametrize("keys", [True, False])
def test_the_next_run_commits_keys_that_a_stopped_run_left_out(tmp_path: Path, *, keys: bool) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    growing.archive()
    lake = growing.lake
    assert followed_version(lake) < delta_table(lake.messages).version()
    result = run_archive(ThreadRunner(1), Config(str(growing.store), lake.root, keys=keys))
    assert (result.sequence, result.messages) == (0, 0)
    assert (followed_version(lake) == delta_table(lake.messages).version()) == keys
