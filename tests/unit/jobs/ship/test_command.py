"""Tests of `commitlake ship` with a folder as the target: options, exit codes, summaries and the name of the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.shipping.folder_target import FolderTarget
from commitlake.connectors.shipping.ship_target import ShipUnavailableError
from commitlake.jobs.cli import process
from commitlake.jobs.dump import command as dump
from commitlake.jobs.guard import command as guard
from commitlake.jobs.ship import command as ship
from commitlake.jobs.ship import run
from commitlake.jobs.ship.arguments import parse_rate
from commitlake.pipelines.ship.agent import ShipAgent, ShipRound
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, parse_manifest
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.store_formats import JMQ, ROCKETMQ, StoreFormat
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_folder", "usual_priority")

SIZE = 1 << 14


def two_segments(root: Path) -> Path:
    """Write a store of one complete segment and one that is being written."""
    return write_store(root, [(0, closed_segment(messages(20), SIZE)), (SIZE, open_segment(messages(5), SIZE, SIZE))])


@pytest.mark.parametrize("layout", [ROCKETMQ, JMQ], ids=lambda layout: layout.name)
def test_other_jobs_read_the_copy(tmp_path: Path, layout: StoreFormat, capsys: pytest.CaptureFixture[str]) -> None:
    store = layout.write(tmp_path / "store", 40)
    assert ship.main(["--store", str(store), "--to", "copy", "--once", "--broker", "b"]) == 0
    told = capsys.readouterr().err
    assert "the copy of the log ends at physical offset" in told
    printed = []
    for place in (store, Path("copy")):
        assert dump.main([str(place), "--broker", "b", "--quiet"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_guard_refuses_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ship.main(["--store", str(two_segments(tmp_path / "store")), "--to", "copy", "--once"]) == 0
    assert guard.main(["--store", "copy", "--lake", str(tmp_path / "lake")]) == 2
    assert "run guard on the broker's machine" in capsys.readouterr().err


def test_second_run_ships_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--store", str(two_segments(tmp_path / "store")), "--to", "copy", "--once", "--metrics-file", "m.prom"]
    assert ship.main(arguments) == 0
    assert "shipped 0 B to copy" not in capsys.readouterr().err
    assert ship.main(arguments) == 0
    assert "shipped 0 B to copy" in capsys.readouterr().err
    shipped = sum(line.startswith("commitlake_ship_bytes_total") for line in Path("m.prom").read_text().splitlines())
    assert shipped == 1


def test_skipped_files_are_named_though_the_log_needs_a_second_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = two_segments(tmp_path / "store")
    (store / "consumequeue").mkdir()
    (store / "consumequeue" / "orders").symlink_to(tmp_path)
    round_of = ShipAgent.ship_round

    def waiting(agent: ShipAgent, *, includes_other_files: bool = True) -> ShipRound:
        found = round_of(agent, includes_other_files=includes_other_files)
        found.is_waiting = includes_other_files
        return found

    monkeypatch.setattr(ShipAgent, "ship_round", waiting)
    monkeypatch.setattr(run, "UNCHANGED_SECONDS", 0)
    assert ship.main(["--store", str(store), "--to", "copy", "--once"]) == 3
    assert "skipped: " in (printed := capsys.readouterr().err)
    assert "consumequeue/orders: expected a folder, found a symbolic link" in printed


def test_lost_segments_end_with_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = two_segments(tmp_path / "store")
    arguments = ["--store", str(store), "--to", "copy", "--once"]
    assert ship.main(arguments) == 0
    for path in (store / "commitlog").iterdir():
        path.unlink()
    write_store(store, [(5 * SIZE, open_segment(messages(5), SIZE, 5 * SIZE))])
    assert ship.main(arguments) == 3
    assert "of the log were deleted before they were shipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--store", "store", "--to", "store/copy"], "cannot be inside one another"),
        (["--store", "store/commitlog", "--to", "store"], "cannot be inside one another"),
        (["--store", "nothing", "--to", "copy"], "expected a store's folder"),
        (["--store", "s3://bucket/prefix", "--to", "s3://bucket/other"], "the broker's own folder"),
        (["--store", "s3://bucket/prefix", "--to", "wasbs://host/copy"], "expected a local folder"),
        (["--store", "s3://bucket/prefix", "--to", "hdfs://host/copy"], "the broker's own folder"),
        (
            ["--store", "store", "--to", "wasbs://host/copy"],
            "expected s3://bucket/prefix, gs://bucket/prefix, abfss://container@account",
        ),
        (["--store", "store", "--to", "s3://user:secret@bucket/copy"], "holds credentials"),
        (["--store", "store", "--to", "copy", "--rate", "12"], "is not a rate"),
        (["--store", "store", "--to", "copy", "--broker", "a\0b"], "NUL"),
        (["--store", "store", "--to", "store/commitlog/" + segment_name(0)], "cannot be inside one another"),
        (["--store", "store", "--to", "file"], "a folder"),
    ],
)
def test_wrong_arguments_end_with_exit_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two_segments(Path("store"))
    Path("file").touch()
    try:
        code = ship.main([*arguments, "--once"])
    except SystemExit as error:
        code = int(str(error.code))
    told = capsys.readouterr().err
    assert code == 2, told
    assert expected in told
    assert "secret" not in told


def test_place_of_another_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_segments(tmp_path / "a")
    write_store(tmp_path / "b", [(0, open_segment(messages(9, seed=4), SIZE))])
    assert ship.main(["--store", str(tmp_path / "a"), "--to", "copy", "--once", "--broker", "x"]) == 0
    assert ship.main(["--store", str(tmp_path / "b"), "--to", "copy", "--once", "--broker", "x"]) == 4
    assert ship.main(["--store", str(tmp_path / "b"), "--to", str(tmp_path / "a"), "--once"]) == 4  # a real store
    assert "no agent has shipped" in capsys.readouterr().err


def test_full_disk_ends_with_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    two_segments(Path("store"))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert ship.main(["--store", "store", "--to", "copy", "--once"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert ship.main(["--store", "store", "--to", "copy", "--once"]) == 0


def test_agent_waits_for_a_target_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    two_segments(Path("store"))
    failures = iter([True, True])
    claim = FolderTarget.claim

    def away(target: FolderTarget) -> None:
        if next(failures, False):
            raise ShipUnavailableError("the target is away")
        claim(target)
        os.kill(os.getpid(), signal.SIGTERM)  # ends the agent after its round

    monkeypatch.setattr(FolderTarget, "claim", away)
    for name in ("seen", "taken", "asked"):  # what the signal changes
        monkeypatch.setattr(process._state, name, getattr(process._state, name))
    monkeypatch.setattr(run, "_FIRST_WAIT_SECONDS", 0.01)
    assert ship.main(["--store", "store", "--to", "copy"]) == 0
    assert Path("copy", LOG_MANIFEST).exists()


def test_agent_follows_until_it_is_stopped(tmp_path: Path) -> None:
    store = two_segments(tmp_path / "store")
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "ship", "--interval", "1s"]
    with subprocess.Popen([*command, "--store", str(store), "--to", "copy"], stderr=subprocess.PIPE) as agent:

        def shipped() -> int:
            path = Path("copy", LOG_MANIFEST)
            return sum(
                file.shipped_bytes for file in parse_manifest(path.read_bytes(), "").files.values() if path.exists()
            )

        try:
            wait_until(lambda: Path("copy", LOG_MANIFEST).exists() and shipped() > SIZE)
            longer = open_segment(messages(9), SIZE, SIZE)
            write_store(store, [(SIZE, longer)])
            wait_until(lambda: shipped() == SIZE + len(longer.rstrip(b"\0")))
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(60) == 0
        finally:
            agent.kill()
        assert agent.stderr is not None
        assert b"ends at physical offset" in agent.stderr.read()


def test_agent_loads_no_large_library(tmp_path: Path) -> None:
    program = "import sys\nfrom commitlake.jobs.ship import command\ncode = command.main(sys.argv[1:])\n"
    program += "print(code, [name for name in ('numpy', 'pyarrow', 'pandas', 'pyspark') if name in sys.modules])"
    store = two_segments(tmp_path / "store")
    command = [sys.executable, "-c", program, "--store", str(store), "--to", "copy", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_store_is_named_by_option_conf_or_folder(tmp_path: Path) -> None:
    root = two_segments(tmp_path / "broker-x" / "store")

    def name(**given: str) -> str:
        options = [word for option, value in given.items() for word in (f"--{option.replace('_', '-')}", value)]
        return ship.find_store_name(ship.Ship.parse("--store", str(root), "--to", "copy", *options))

    assert name() == name(store=str(root / "commitlog")) == "broker-x"
    assert name(broker="b") == "b"
    (root / ".." / "broker.conf").write_text("brokerName=named\n")
    assert name() == "named"


def test_rates_are_bytes_per_second() -> None:
    assert [parse_rate(text) for text in ("500k", "20M", "1.5G", "1000", "2MB/s", "20MiB/s")] == [
        500e3, 20e6, 1.5e9, 1e3, 2e6, 20 << 20,
    ]  # fmt: skip
