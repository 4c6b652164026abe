"""Tests of jobs on lakes without a table: each gives a result or an understandable error."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from pathlib import Path

import pytest

from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

JOBS = [
    "query --lake {lake} --topic orders",
    "query --lake {lake} --key key0",
    "query --lake {lake} --sql SELECT\u00a0count(*)\u00a0FROM\u00a0archive_runs",
    "tps --lake {lake}",
    "tps --lake {lake} --window 1s --by producer-host",
    "tps --lake {lake} --show hot-queues",
    "tps --lake {lake} --show hot-keys",
    "tps --lake {lake} --show delayed",
    "tps --lake {lake} --html {out}/rates.html",
    "lag --lake {lake}",
    "lag --lake {lake} --at 2023-11-15T01:00",
    "lag --lake {lake} --html {out}/lag.html",
    "lineage --lake {lake} --key key0",
    "lineage --lake {lake} --topics --from 2023-11-15 --to 2023-11-16",
    pytest.param("audit --lake {lake} --local", marks=pytest.mark.long("ten audits; audit's tests lose tables, too")),
    "guard --store {store} --lake {lake}",
    "metrics --lake {lake} --textfile {out}/metrics.prom",
    "dlq --lake {lake}",
    "replay list --lake {lake}",
    "offsets --lake {lake} --group billing --at 2023-11-15T01:00",
    "offsets --lake {lake} --group billing --topic orders --consume-from 2023-11-15",
    "erase --lake {lake} --key key0 --reason asked --dry-run",
    "erase --lake {lake} --list",
    "maintain --lake {lake} --dry-run --local",
    "maintain --lake {lake} --local",
    "maintain --lake {lake} --repair --dry-run --local",
    "evidence show --lake {lake}",
    pytest.param("restore --lake {lake} --out {out}/store", marks=pytest.mark.long("ten restores of the same store")),
]

PARTS = 3
OTHER_TABLES = pytest.mark.long(
    "each job lacks each of a third of the tables, and other jobs those of another third, each time"
)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Orders and a dead letter, archived by two runs, and a snapshot of the offsets of a group."""
    growing = GrowingLake(tmp_path_factory.mktemp("whole"))
    for start in (0, 10):
        growing.write(
            [
                new_message(number, topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + 1000 * number)
                for number in range(start, start + 10)
            ]
        )
        growing.write([new_message(start, topic="%DLQ%billing", queue_id=0, born_timestamp=MIDNIGHT_MS)])
        assert archive(["--store", str(growing.store), "--lake", growing.lake.root, "--local", "--quiet"]) == 0
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"offsetTable": {"orders@billing": {0: 4}}}))
    os.utime(path, (MIDNIGHT_MS // 1000 + 60, MIDNIGHT_MS // 1000 + 60))
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def tables_of(lake: Lake) -> list[str]:
    return sorted(path.parent.name for path in Path(lake.root).glob(f"*/{LOG}") if path.parent.name != "messages")


def test_the_lake_has_the_tables_that_jobs_read(growing: GrowingLake) -> None:
    assert set(tables_of(growing.lake)) >= {
        "archive_runs", "consumer_offsets", "edges", "message_keys", "profiles", "topic_minutes"
    }  # fmt: skip


@pytest.mark.some_cases(9)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=OTHER_TABLES) for part in range(1, PARTS))])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job).replace("{lake}", "lake").replace("{out}/", ""))
def test_each_job_names_the_missing_table(
    job: str, part: int, growing: GrowingLake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for table in tables_of(growing.lake)[(len(job) + part) % PARTS :: PARTS]:  # other tables for other jobs
        work = tmp_path / table
        shutil.copytree(growing.folder, work)
        lake, store = work / "lake", work / "broker-a"
        shutil.rmtree(lake / table)
        # Without its seal, the table seems never to have been written.
        (lake / "_newest" / f"{table}.json").unlink(missing_ok=True)
        name, *words = [word.replace("\u00a0", " ") for word in job.split(" ")]
        arguments = [word.format(lake=lake, store=store, out=work) for word in words]
        code = importlib.import_module(f"commitlake.jobs.{name}.command").main(arguments)
        printed = capfd.readouterr().err
        assert "stack trace" not in printed, (table, printed)
        assert "NotFoundError" not in printed, (table, printed)
        if code == ExitCode.FAILED:
            assert "Audit again" in printed, (table, printed)  # an unfinished run may be finished soon
        elif code not in (ExitCode.OK, ExitCode.DAMAGE):
            assert ": error: " in printed, (table, printed)
