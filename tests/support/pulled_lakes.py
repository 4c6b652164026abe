"""Lakes that are filled by pulling from brokers in the test's process, or from the files of the same brokers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import StoreProgress, read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.from_broker.planning import BrokerWork, find_broker_work
from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, plan_work, run_archive
from tests.support.live_brokers import LiveCluster

Row = dict[str, Any]


@dataclass(frozen=True)
class PulledLake:
    """A lake that is filled by pulling.

    Attributes:
        cluster: cluster of its brokers.
        folder: folder of the lake.
    """

    cluster: LiveCluster
    folder: Path

    @property
    def config(self) -> Config:
        """Return the configuration of a run that pulls everything."""
        source = BrokerSource(ClientOptions(self.cluster.address, request_seconds=3.0), retry_seconds=0.2)
        return Config("", Lake(str(self.folder)), source=source, keys=False, quality=False)

    def plan(self, **changes: Any) -> BrokerWork:
        """Return the plan of a run."""
        assert self.config.source is not None
        return find_broker_work(replace(self.config.source, **changes), Lake(str(self.folder)))

    def pull(self, partition: int = 32 << 20, **changes: Any) -> Result:
        """Archive by pulling.

        Args:
            partition: log bytes of a partition.
            changes: changed settings of the source.
        """
        assert self.config.source is not None
        source = replace(self.config.source, **changes)
        return run_archive(HERE, replace(self.config, source=source, max_partition_bytes=partition))

    def read_files(self, name: str = "broker-a") -> Result:
        """Archive a broker's files."""
        config = replace(self.config, store=str(self.cluster.brokers[name].store.path), source=None, broker=name)
        return run_archive(HERE, config, plan_work(config))

    def rows(self) -> list[Row]:
        """Return all messages in order, without the positions of their bodies."""
        table = DeltaTable(str(self.folder / "messages")).to_pyarrow_table()
        rows: list[Row] = (
            table.drop_columns(["body_ref"])
            .sort_by([("broker", "ascending"), ("physical_offset", "ascending")])
            .to_pylist()
        )
        return rows

    def offsets(self) -> list[int]:
        """Return the physical offsets of all messages, in order."""
        return [row["physical_offset"] for row in self.rows()]

    def progress(self, name: str = "broker-a") -> StoreProgress:
        """Return the archived position of a broker."""
        last = read_last_commit(Lake(str(self.folder)))
        assert last is not None
        return last.stores[name]
