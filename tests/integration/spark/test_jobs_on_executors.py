"""Jobs whose tasks run on Spark write the same as without it, also about a damaged data file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.jobs.dlq.command import main as dlq
from commitlake.jobs.erase.command import main as erase
from commitlake.jobs.lineage.command import main as lineage
from commitlake.jobs.query.command import main as query
from commitlake.jobs.tps.command import main as tps
from commitlake.schemas.errors import ExitCode
from tests.support.analysed_lakes import random_lake
from tests.support.dead_letters import letters_of
from tests.support.lakes import GrowingLake
from tests.support.table_damages import damage

Job = Callable[[Sequence[str]], int]
DRY_RUN = ["--reason", "they asked for it", "--dry-run"]
KEYS = [f"order-{number}" for number in range(8)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of two runs, in which two groups have dead letters."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    for group, topic in (("billing", "orders"), ("shipping", "parcels")):
        growing.write(letters_of(group, topic, 7))
        growing.archive()
    return growing.lake.root


def answers(job: Job, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[tuple[int, str, str]]:
    """Return exit code, output and errors of a job without Spark and with it, without the times that it took."""
    found = []
    for engine in ((), ("--spark",)):
        capsys.readouterr()
        code = job([*arguments, *engine])
        output, errors = (re.sub(r"\(\d+\.\d s\)", "", text) for text in capsys.readouterr())
        found.append((code, output, errors))
    return found


@pytest.mark.parametrize("form", ["json", "tree"])
def test_stories_of_many_keys_are_the_same(
    spark: SparkSession, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("\n".join([*KEYS, "unknown"]))
    arguments = ["--lake", random_lake(1).lake.root, "--keys-file", str(keys), "--format", form]
    here, there = answers(lineage, arguments, capsys)
    assert here == there
    assert here[0] == ExitCode.OK
    assert all(key in here[1] for key in KEYS[:5])


@pytest.mark.parametrize(
    "more",
    [
        ["--samples", "2"],
        ["--json"],
        ["--no-shape", "--group", "billing"],
        ["--cause", "2"],
        ["--where", "physical_offset % 2 = 0"],
        ["--group", "nobody"],
    ],
)
def test_causes_of_dead_letters_are_the_same(
    spark: SparkSession, lake: str, more: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = answers(dlq, ["--lake", lake, *more], capsys)
    assert here == there
    assert here[0] == ExitCode.OK


def test_an_erasure_finds_the_same_messages(spark: SparkSession, lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [argument for key in KEYS for argument in ("--key", key)]
    here, there = answers(erase, ["--lake", lake, *keys, *DRY_RUN], capsys)
    assert here == there
    assert "14 messages" in here[2]


@pytest.mark.parametrize(
    ("job", "more", "how"),
    [
        (dlq, [], "cut"),
        (dlq, [], "deleted"),
        (lineage, ["--keys-file", "keys.txt"], "cut"),
        (lineage, ["--keys-file", "keys.txt"], "deleted"),
        (erase, ["--key", "order-1", *DRY_RUN], "cut"),
    ],
    ids=["dlq-cut", "dlq-deleted", "lineage-cut", "lineage-deleted", "erase-cut"],
)
def test_a_damaged_data_file_is_named(
    spark: SparkSession,
    lake: str,
    tmp_path: Path,
    job: Job,
    more: Sequence[str],
    how: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(shutil.copytree(lake, tmp_path / "lake"))
    for file in (root / "messages").glob("*=*/**/*.parquet"):
        damage(file, how)
    keys = tmp_path / "keys.txt"
    keys.write_text("order-1\norder-2\n")
    here, there = answers(
        job, ["--lake", str(root), *(str(keys) if each == "keys.txt" else each for each in more)], capsys
    )
    assert here == there
    assert here[0] == ExitCode.DAMAGE
    assert ".parquet" in here[2]


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("how", ["cut", "deleted"])
@pytest.mark.parametrize(
    ("job", "table", "more"),
    [
        (query, "messages", ["--topic", "%DLQ%billing"]),
        (query, "messages", ["--sql", "SELECT count(*) FROM messages WHERE sys_flag < 7"]),
        (tps, "topic_minutes", ["--from", "2023-11-13", "--to", "2023-11-16"]),
    ],
    ids=["query", "sql", "tps"],
)
def test_a_damaged_data_file_that_spark_reads_is_named(
    spark: SparkSession,
    lake: str,
    tmp_path: Path,
    job: Job,
    table: str,
    more: Sequence[str],
    how: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(shutil.copytree(lake, tmp_path / "lake"))
    for file in (root / table).rglob("*.parquet"):
        damage(file, how)
    here, there = answers(job, ["--lake", str(root), *more], capsys)
    assert here[0] == there[0] == ExitCode.DAMAGE
    for _, _, error in (here, there):
        assert f"{root / table}: the data file " in error
