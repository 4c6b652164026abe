"""Tests of guard on stores of other brokers than RocketMQ: deletion rules and settings files."""

from __future__ import annotations

import csv
import io
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.jobs.guard import command as guard
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from tests.support.indexed_stores import OPTIONS, write_indexed_store
from tests.support.jmq_stores import write_jmq_store

COUNT = 120
AROUND_THE_CLOCK = "deleteWhen=" + ";".join(f"{hour:02}" for hour in range(24))
HOUR = 3600


@pytest.fixture
def boltmq(tmp_path: Path) -> Path:
    """A running BoltMQ broker's store, whose segments are an hour old."""
    store = write_indexed_store(tmp_path / "broker-b" / "store", COUNT, options=replace(OPTIONS, dialect=BOLTMQ))
    for segment in (store / "commitlog").iterdir():
        touch(segment, 1)
    (store / "abort").touch()
    touch(store / "abort", 10)
    return store


def touch(path: Path, hours: float) -> None:
    """Set the age of a file."""
    os.utime(path, (time.time() - hours * HOUR,) * 2)


def run(capsys: pytest.CaptureFixture[str], store: Path, *more: str) -> tuple[int, list[dict[str, str]], str]:
    """Return exit code, rows and standard error of a run without a lake, in a time zone where it is 03:xx."""
    behind = time.gmtime().tm_hour - 3
    zone = f"Etc/GMT{behind - 24 if behind > 12 else behind:+d}"  # its sign is POSIX's
    arguments = ["--store", str(store), "--lake", str(store.parent / "no-lake"), "--output", "csv", *more]
    code = guard.main([*arguments, "--broker-time-zone", zone])
    captured = capsys.readouterr()
    return code, list(csv.DictReader(io.StringIO(captured.out))), captured.err


def write_toml(folder: Path, hours: int = 24, more: str = "") -> str:
    """Write a broker.toml with the number 04, as in BoltMQ's own sample."""
    path = folder / "broker.toml"
    path.write_text(f"# 删除\n{more}\n[broker]\ndelete_when=04\n[store]\nfile_reserved_time={hours}\n", "utf-8")
    return str(path)


def test_the_settings_file_of_boltmq_is_read(boltmq: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, err = run(capsys, boltmq, "--broker-conf", write_toml(tmp_path, 12))
    assert code == ExitCode.OK
    assert [row["verdict"] for row in rows] == ["waits"] * len(rows)
    assert f"BoltMQ's rules, settings from {tmp_path}/broker.toml: 12 hours, at 04; it does not know ages before" in err
    code, rows, _ = run(capsys, boltmq, "--broker-conf", write_toml(tmp_path, 1))
    assert code == ExitCode.DAMAGE
    assert [row["verdict"] for row in rows[:-1]] == ["at risk"] * (len(rows) - 1)


def test_segments_that_boltmq_wrote_before_its_start_are_at_risk(
    boltmq: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, boltmq)[0] == ExitCode.OK
    touch(boltmq / "abort", 0.5)
    code, rows, _ = run(capsys, boltmq)
    assert code == ExitCode.DAMAGE
    assert [row["verdict"] for row in rows[:-1]] == ["at risk"] * (len(rows) - 1)


def test_segments_of_a_stopped_boltmq_are_at_risk_at_its_next_start(
    boltmq: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (boltmq / "abort").unlink()
    code, _, err = run(capsys, boltmq)
    assert code == ExitCode.DAMAGE
    assert "settings from its defaults: 48 hours, at 04; it does not know ages before its next start" in err


def test_segments_of_a_slave_of_boltmq_are_at_risk(
    boltmq: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = write_toml(tmp_path, more='[cluster]\nbroker_role="SLAVE"')
    code, _, err = run(capsys, boltmq, "--broker-conf", conf)
    assert code == ExitCode.DAMAGE
    assert "as a slave it does not know the age of its segments" in err


def test_a_rocketmq_settings_file_is_refused_for_a_boltmq_store(
    boltmq: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("fileReservedTime=1", AROUND_THE_CLOCK):
        conf = tmp_path / "broker.conf"
        conf.write_text(text)
        code, rows, err = run(capsys, boltmq, "--broker-conf", str(conf))
        assert (code, rows) == (ExitCode.USAGE, [])
        assert "expected" in err
        assert "broker-b is a store of BoltMQ: name its broker.toml" in err


def test_a_boltmq_settings_file_is_refused_for_other_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = write_toml(tmp_path)
    rocketmq = write_indexed_store(tmp_path / "broker-a" / "store", 5)
    jmq = write_jmq_store(tmp_path / "broker-j" / "store", 5)
    for store in (rocketmq, jmq):
        code, rows, err = run(capsys, store, "--broker-conf", conf)
        assert (code, rows) == (ExitCode.USAGE, [])
        assert f"--broker-conf: {conf} has the settings of a BoltMQ broker, but {store}/" in err


def test_guard_of_a_jmq_store_states_that_it_uses_rocketmqs_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_jmq_store(tmp_path / "broker-j" / "store", COUNT)
    for segment in (store / "journal").iterdir():
        touch(segment, 2)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"fileReservedTime=1\n{AROUND_THE_CLOCK}")
    code, rows, err = run(capsys, store, "--broker-conf", str(conf))
    assert code == ExitCode.DAMAGE
    assert [row["verdict"] for row in rows[:-1]] == ["at risk"] * (len(rows) - 1)
    assert "Rules of broker-j: RocketMQ's rules, by which broker_lite deletes files of a journal" in err
