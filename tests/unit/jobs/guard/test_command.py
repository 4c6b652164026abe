"""Tests of guard: verdicts, exit codes, output formats, wrong settings."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.guard import command as guard
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.logs import closed_segment, messages, open_segment, write_store

SIZE = 8192
EVERY_HOUR = "deleteWhen=" + ";".join(f"{hour:02}" for hour in range(24))


def write_aged(store: Path, *ages_hours: float) -> Path:
    """Write a store with segments last written this number of hours ago; the last one is still open."""
    last = len(ages_hours) - 1
    for number, age in enumerate(ages_hours):
        fill = open_segment if number == last else closed_segment
        write_store(store, [(number * SIZE, fill(messages(20, seed=number), SIZE, number * SIZE))])
        moment = time.time() - age * 3600
        os.utime(store / "commitlog" / f"{number * SIZE:020}", (moment, moment))
    return store


def conf_of(folder: Path, *lines: str) -> str:
    """Write a broker.conf under which the hour of the day and the disk's usage do not matter."""
    path = folder / "broker.conf"
    path.write_text("\n".join([EVERY_HOUR, "diskMaxUsedSpaceRatio=95", "cleanFileForciblyEnable=false", *lines]))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], store: str | Path, lake: str | Path, *more: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a run."""
    code = guard.main(["--store", str(store), "--lake", str(lake), *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_without_a_lake_an_expired_segment_is_at_risk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_aged(tmp_path / "broker-a", 73, 70, 1, 0)
    conf = conf_of(tmp_path)
    code, out, err = run(capsys, store, tmp_path / "no-lake", "--broker-conf", conf, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == ExitCode.DAMAGE
    assert [row["verdict"] for row in rows] == ["at risk", "at risk", "waits", "waits"]
    assert [row["archived"] for row in rows] == ["no"] * 4
    assert rows[0]["cause"] == "time"
    assert rows[3]["expires_at"] == ""
    assert "There is no lake in" in err
    assert "At risk: broker-a · 2 segments\n  16.0 KiB will be deleted from" in err
    counts = "stores: 1; segments: 4; archived: 0; not archived yet: 2; at risk within 12 h: 2"
    assert counts in err


def test_a_segment_that_is_kept_longer_than_the_limit_is_not_at_risk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_aged(tmp_path / "broker-a", 70, 1, 0)
    conf = conf_of(tmp_path)
    assert run(capsys, store, tmp_path / "lake", "--broker-conf", conf, "--within", "1h")[0] == ExitCode.OK
    assert run(capsys, store, tmp_path / "lake", "--broker-conf", conf, "--within", "3h")[0] == ExitCode.DAMAGE


@pytest.fixture
def archived(tmp_path: Path) -> GrowingLake:
    """A store of one open segment that is completely archived in a lake."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(30))
    growing.archive()
    return growing


def age_segments(growing: GrowingLake) -> None:
    """Make the segment full, old, and followed by others."""
    size = (growing.store / "commitlog" / f"{0:020}").stat().st_size
    for number in (1, 2):
        write_store(growing.store, [(number * size, open_segment(messages(5), size, number * size))])
    moment = time.time() - 100 * 3600
    os.utime(growing.store / "commitlog" / f"{0:020}", (moment, moment))


def test_an_archived_segment_is_not_at_risk(archived: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    blank = bytearray((archived.store / "commitlog" / f"{0:020}").read_bytes())
    from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank

    end = len(archived.log)
    blank[end : end + 8] = serialize_blank(len(blank) - end)
    (archived.store / "commitlog" / f"{0:020}").write_bytes(blank)
    age_segments(archived)
    conf = conf_of(archived.folder)
    code, out, err = run(capsys, archived.store, archived.lake.root, "--broker-conf", conf, "--output", "json")
    (store,) = json.loads(out)["rows"]
    assert [row["verdict"] for row in store["segments"]] == ["archived", "waits", "waits"]
    assert (code, store["lost"], store["replaced"]) == (ExitCode.OK, None, None)
    assert "At risk:" not in err


def test_a_partly_archived_segment_is_at_risk(archived: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    archived.write(shop_messages(10, seed=1))
    age_segments(archived)
    conf = conf_of(archived.folder)
    code, out, _ = run(capsys, archived.store, archived.lake.root, "--broker-conf", conf, "--output", "json")
    (store,) = json.loads(out)["rows"]
    first = store["segments"][0]
    assert (first["archived"], first["verdict"]) == ("partly", "at risk")
    assert code == ExitCode.DAMAGE


def test_a_segment_that_is_already_lost_is_reported(archived: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    age_segments(archived)
    (archived.store / "commitlog" / f"{0:020}").unlink()
    code, out, err = run(capsys, archived.store, archived.lake.root, "--output", "json")
    (store,) = json.loads(out)["rows"]
    assert code == ExitCode.DAMAGE
    assert store["lost"] == {"start_offset": len(archived.log), "end_offset": store["segments"][0]["size"]}
    assert "were deleted before they were archived" in err


def test_a_store_that_was_replaced_is_refused_and_counts_as_not_archived(
    archived: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    size = (archived.store / "commitlog" / f"{0:020}").stat().st_size
    write_store(archived.store, [(0, open_segment(messages(40, seed=8), size))])
    code, out, err = run(capsys, archived.store, archived.lake.root, "--output", "json")
    (store,) = json.loads(out)["rows"]
    assert code == ExitCode.REFUSED
    assert "is not the one that was archived" in store["replaced"]
    assert store["replaced"] in err
    assert store["segments"][0]["archived"] == "no"


def test_many_stores_have_their_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, hours in (("broker-a", 1), ("broker-b", 72)):
        write_aged(tmp_path / name / "store", 5, 4, 0)
        conf_of(tmp_path / name, f"fileReservedTime={hours}")
    pattern = f"{tmp_path}/{{broker}}"
    code, out, err = run(
        capsys,
        f"{pattern}/store",
        tmp_path / "lake",
        "--broker-conf",
        f"{pattern}/broker.conf",
        "--within",
        "30m",
        "--output",
        "csv",
    )
    rows = [(row["broker"], row["verdict"]) for row in csv.DictReader(io.StringIO(out))]
    assert code == ExitCode.DAMAGE
    assert [verdict for broker, verdict in rows if broker == "broker-a"] == ["at risk", "at risk", "waits"]
    assert [verdict for broker, verdict in rows if broker == "broker-b"] == ["waits"] * 3
    assert "stores: 2; segments: 6;" in err


def test_the_disk_is_reported_with_its_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_aged(tmp_path / "broker-a", 3, 2, 1, 0)
    _, out, err = run(capsys, store, tmp_path / "lake", "--output", "json")
    (found,) = json.loads(out)["rows"]
    (disk,) = found["disks"]
    assert 0 < disk["used_bytes"] < disk["entire_bytes"]
    assert [limit["percent"] for limit in disk["limits"]] == [75, 85, 90]
    assert found["growth_bytes_per_hour"] > 0
    row = next(line for line in err.splitlines() if line.startswith("broker-a  "))
    shown = float(row.split(" %")[0].split()[-1])  # read a moment apart, while other programs write
    assert shown == pytest.approx(disk["used_percent"], abs=5)
    assert "75 %: expired segments are deleted at any hour" in err


def test_a_table_has_sizes_with_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, write_aged(tmp_path / "broker-a", 1, 0), tmp_path / "lake")
    assert code == ExitCode.OK
    assert "00000000000000008192" in out
    assert "8.0 KiB" in out


def test_quiet_prints_only_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_aged(tmp_path / "broker-a", 80, 1, 0)
    _, _, err = run(capsys, store, tmp_path / "lake", "--quiet", "--broker-conf", conf_of(tmp_path))
    first, second, third, example = err.splitlines()
    assert first.startswith("At risk: broker-a")
    assert "will be deleted from" in second
    assert "What to do: archive now: 'commitlake archive" in third
    assert "is deleted at" in example


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--broker-conf", "CONF"], "fileReservedTime: expected a number of at least 0, found '3 days'"),
        (["--broker-conf", "/no/such/file"], "--broker-conf: /no/such/file cannot be read: No such file or directory"),
        (["--lake", "FILES"], "is not a lake"),
        (["--store", "/no/such/store"], "does not exist"),
    ],
)
def test_a_wrong_setting_is_reported_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    conf = conf_of(tmp_path, "fileReservedTime=3 days")
    store = write_aged(tmp_path / "broker-a", 1, 0)
    given: dict[str, Any] = {"CONF": conf, "FILES": str(tmp_path)}
    code, _, err = run(capsys, store, tmp_path / "lake", *(given.get(word, word) for word in arguments))
    assert code == ExitCode.USAGE
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--within", "soon", "is not a duration"),
        ("--broker-time-zone", "Mars/Olympus", "is not a time zone"),
        ("--clean-forcibly-ratio", "85", "is not a ratio"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        guard.main(["--store", "s", "--lake", "l", option, value])
    assert caught.value.code == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_lake_in_an_unsupported_object_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, write_aged(tmp_path / "broker-a", 1, 0), "gs://bucket/lake")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "'gs://bucket/lake' cannot hold a lake" in err


def test_neither_spark_nor_compiled_code_is_loaded(tmp_path: Path) -> None:
    store = write_aged(tmp_path / "broker-a", 1, 0)
    program = (
        "import sys; from commitlake.jobs.guard import command as guard; "
        f"code = guard.main(['--store', {str(store)!r}, '--lake', {str(tmp_path / 'lake')!r}, '--quiet']); "
        "print(code, sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'py4j', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
