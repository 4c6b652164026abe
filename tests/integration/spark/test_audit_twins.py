"""An audit whose tasks run on Spark gives the result of one in this process, on every lake."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.jobs.audit import command as audit
from commitlake.jobs.maintain import command as maintain
from tests.support.audited_lakes import (
    audit_json,
    change_each_column,
    change_messages,
    delete_pack,
    flip_in_pack,
    lose_keys,
    write_jmq_lake,
    write_lake,
)
from tests.support.lakes import FIRST_DATE

Lakes = Callable[[str], Path]
FIRST = datetime.date.fromisoformat(FIRST_DATE)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    """Lakes by name, each made once."""
    folder = tmp_path_factory.mktemp("twins")
    make = {
        "counted": write_lake,
        "partly counted": lambda root: write_lake(root, counted=(True, False, True)),
        "uncounted": lambda root: write_lake(root, counted=(False,)),
        "jmq": write_jmq_lake,
    }

    def made(name: str) -> Path:
        root = folder / name.replace(" ", "-")
        return root if root.exists() else make[name](root)

    return made


def nothing(_: Path) -> None:
    """Damage nothing."""


def damage_all(root: Path) -> None:
    """Damage everything that an audit checks, each in its own rows."""
    change_messages(root, change_each_column)
    flip_in_pack(root)
    delete_pack(root)
    lose_keys(root)


def lose_messages(root: Path) -> None:
    """Lose a message, and have another one twice."""
    change_messages(root, lambda rows: [*rows[1:], rows[7]])


def expire(root: Path) -> None:
    """Drop the first date's messages and the second date's bodies."""
    today = datetime.datetime.now(datetime.UTC).date()
    kept = {days: f"{(today - FIRST).days - days}d" for days in (1, 2)}
    for keep in (f"bodies={kept[2]}", f"messages={kept[1]}"):
        assert maintain.main(["--lake", str(root / "lake"), "--quiet", "--keep", keep]) == 0


SPAN = ("--from", f"{FIRST}T12:03", "--to", f"{FIRST + datetime.timedelta(days=2)}T06:01")
KEPT_SINCE = f"{(datetime.datetime.now(datetime.UTC).date() - FIRST).days - 2}d"


@pytest.mark.parametrize(
    ("lake", "damage", "more", "code"),
    [
        pytest.param("counted", nothing, (), 0, marks=pytest.mark.long("the lake that expired has no damage, too")),
        ("counted", damage_all, (), 3),
        pytest.param("counted", lose_messages, SPAN, 3, marks=pytest.mark.long("a span; also in a unit test")),
        pytest.param("jmq", lose_messages, (), 3, marks=pytest.mark.long("the same comparison of another format")),
        pytest.param(
            "partly counted",
            lose_messages,
            ("--bodies-kept", KEPT_SINCE),
            3,
            marks=pytest.mark.long("also in a unit test"),
        ),
        pytest.param("partly counted", expire, (), 0, marks=pytest.mark.long("expired runs; also in unit tests")),
        pytest.param("uncounted", nothing, (), 0, marks=pytest.mark.long("one rule; also in a unit test")),
    ],
)
def test_an_audit_on_spark_gives_the_result_of_one_here(
    spark: SparkSession,
    lakes: Lakes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lake: str,
    damage: Callable[[Path], object],
    more: tuple[str, ...],
    code: int,
) -> None:
    root = Path(shutil.copytree(lakes(lake), tmp_path / "copy"))
    damage(root)
    here = audit_json(root, capsys, *more, "--local")
    there = audit_json(root, capsys, *more)
    assert here == there
    assert here[0] == code


@pytest.mark.long("the results are the same each time, and are printed by the same code")
def test_an_audit_on_spark_prints_what_one_here_prints(
    spark: SparkSession, lakes: Lakes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(lakes("counted"), tmp_path / "copy"))
    lose_keys(root)
    printed = []
    for where in ((), ("--local", "--threads", "2")):
        assert audit.main(["--lake", str(root / "lake"), "--quiet", "--no-bodies", *where]) == 3
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
