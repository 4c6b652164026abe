"""Tests of `commitlake snapshot` from the files of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.jobs.query.command import main as query
from commitlake.jobs.snapshot.command import main
from tests.support.lakes import GrowingLake, shop_messages

OFFSETS = '{"offsetTable":{"topic-00@billing":{0:3,1:4},"topic-01@shipping":{0:2}}}'


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store with messages and offsets, archived."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(10))
    growing.archive()
    write_offsets(growing, OFFSETS)
    return growing


def write_offsets(growing: GrowingLake, content: str) -> None:
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)


def take(growing: GrowingLake, *more: str) -> int:
    return main(["--lake", growing.lake.root, "--store", str(growing.store), *more])


def test_a_snapshot_can_be_queried(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert take(growing) == 0
    printed = capsys.readouterr().err
    assert "broker-a: 3 offsets of 2 groups as of " in printed
    assert printed.endswith(", 3 offsets moved\n")
    arguments = ["--lake", growing.lake.root, "--table", "consumer_offsets", "--where", "\"group\" = 'billing'"]
    assert query([*arguments, "--columns", "topic,queue_id,offset", "--output", "csv"]) == 0
    assert capsys.readouterr().out == "topic,queue_id,offset\ntopic-00,0,3\ntopic-00,1,4\n"


def test_a_second_snapshot_of_the_same_file_adds_nothing(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(growing, "--quiet") == 0
    assert take(growing) == 0
    assert "nothing was added" in capsys.readouterr().err


def test_a_name_guessed_from_the_folder_is_noted(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    guess = "after its folder, which is a guess"
    assert take(growing) == 0
    assert guess not in capsys.readouterr().err  # the lake has a store of this name
    other = growing.store.rename(growing.store.with_name("other"))
    arguments = ["--lake", growing.lake.root, "--store", str(other)]
    assert main(arguments) == 0
    assert f"is 'other' in the lake, {guess}" in capsys.readouterr().err
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_offsets_that_cannot_be_read_are_damage(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    write_offsets(growing, '{"offsetTable":')
    assert take(growing) == 3
    assert "consumerOffset.json: expected JSON with offsetTable" in capsys.readouterr().err


def test_a_folder_that_is_not_a_lake_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", str(tmp_path / "none"), "--store", str(tmp_path)]) == 2
    assert "expected the folder of a lake" in capsys.readouterr().err


def test_a_store_or_a_name_server_is_required(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--lake", growing.lake.root])
    assert "one of the arguments --store --namesrv is required" in capsys.readouterr().err


def test_a_store_that_the_lake_does_not_have_is_warned_of(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(growing, "--broker", "brokr-a") == 0
    assert "the lake has no store 'brokr-a'" in capsys.readouterr().err
