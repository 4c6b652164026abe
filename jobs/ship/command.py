"""Copy a broker's store to an object store, HDFS or a folder, from beside the broker.

    commitlake ship --store /data/rocketmq/store --to s3://logs/broker-a

A small process: no Spark, no JVM, about 100 MB of memory, a low priority for the CPU (nice 10) and the lowest one for
the disk. It only reads the store. Complete segments and new records of the newest one are sent as parts. A part of less
than 8 MiB may be sent again, in a larger one. Azure and HDFS cannot join parts: there, the agent reads them back when
a segment is complete, and sends the segment again. A manifest in the target says what is complete, so that a reader
sees a prefix of the log without a hole. A run that was killed continues where it ended. Jobs read the copy like a
store: `archive --store s3://logs/broker-a`.

Exit codes: 0; 1 if the target cannot be written now (with --once; otherwise the agent waits); 2 for a wrong store,
target or option, or a target that refuses this user; 3 if parts of the log were gone before they were shipped, or files
were skipped; 4 if another agent ships to the same target, or the target has the copy of another store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from commitlake.jobs.arguments.broker_conf import read_store_conf
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.ship.arguments import ShipOptions
from commitlake.schemas.errors import ExitCode

DESCRIPTION = (
    "Copy a broker's store to an object store or a folder, from beside the broker: its log with the newest records, "
    "queues, indexes and settings. The agent is a small process with a low priority for the CPU and the lowest one for "
    "the disk, and only reads the store. It sends what is new, continues after a kill where it ended, and checks the "
    "copy in the target. Without --once it follows the broker until it is stopped. Other jobs read the copy as a "
    "store, on other machines."
)
EXAMPLES = (
    ("ship --store /data/rocketmq/store --to s3://logs/broker-a", "follow a broker, as a service"),
    ("ship --store /data/rocketmq/store --to s3://logs/broker-a --once", "ship what is new and end, for cron"),
    ("ship --store /data/jmq/store --to /mnt/backup/jmq-1 --rate 20M", "to a mounted folder, at most 20 MB per second"),
    ("ship --store /data/rocketmq/store --to s3://logs/broker-a --log-only", "only what archive needs"),
    ("ship --store s3://logs/broker-a --to copy --once", "fetch a copy into a folder, for jobs that need one"),
)


@dataclass(frozen=True, kw_only=True)
class Ship(ShipOptions):
    """The command `ship`, which copies a broker's store to an object store or a folder, from beside the broker."""

    NAME = "ship"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES
    DEFAULTS: ClassVar = {"reports_places": True}

    def run(self) -> ExitCode:
        """Ship the store once, or repeatedly until the agent is stopped."""
        from commitlake.connectors.storage.adapter_choice import is_storage_uri
        from commitlake.connectors.storage.uris import check_scheme
        from commitlake.jobs.ship.run import fetch_store, ship_store

        check_scheme(self.store)
        if is_storage_uri(self.store):
            if not self.once or is_storage_uri(self.to):
                raise JobError(
                    f"--store {self.store}: expected the broker's own folder on this machine",
                    "a copy in an object store or HDFS can be fetched into a folder, with --once",
                )
            return fetch_store(self)
        return ship_store(self, find_store_name(self))


def find_store_name(command: ShipOptions) -> str:
    """Return the name of the store: from the options, a `broker.conf` beside the store, or the name of its folder.

    Raises:
        JobError: if it cannot be the name of a store in a lake.
    """
    from commitlake.connectors.lake.packs.names import find_broker_name_fault, fits_folder_name
    from commitlake.jobs.arguments.conf_file_names import NAME_HINT, read_names_in_conf_files

    root = Path(os.path.abspath(command.store))  # noqa: PTH100 (it does not follow links, as other jobs)
    if root.name in {"commitlog", "journal"}:
        root = root.parent
    parts = [part for part in root.parts if part != "/"] or ["store"]
    folder = parts[-2] if len(parts) > 1 and parts[-1] == "store" else parts[-1]
    named = command.broker
    if named is None and command.broker_conf:
        named = read_store_conf(command.broker_conf, folder).broker_name
    if named is None and not command.broker_conf:
        named = next((name for _, name in read_names_in_conf_files(root)), None)
    name = str(folder if named is None else named)
    if fault := find_broker_name_fault(name):
        raise JobError(f"the name of the store cannot be that of a broker: {fault}", NAME_HINT)
    if not fits_folder_name(name):
        raise JobError(f"the store's name {name[:40]!r}… is too long for a store in a lake", NAME_HINT)
    return name


build_parser, main = Ship.parser, Ship.main
