"""Tests of the search for folders of lakes and of brokers around a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.owned_folders import find_owned_folder, refuse_owned_folder
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.s3_storage import S3Storage
from commitlake.jobs.restore import command as restore
from commitlake.jobs.ship import command as ship
from commitlake.schemas.errors import ExitCode

SEGMENT = "00000000000000000000"
FILES = {
    "lake/messages/_delta_log/00000000000000000000.json": "a table of a lake",
    "a/commitlog/00000000001073741824": "the log of a broker",
    "a/consumequeue/orders/0/00000000000000000000": "a folder of a broker's store",
    "jmq/journal/00000000000000000000": "the log of a broker",
    "jmq/retry/retry.db": "a folder of a broker's store",
    "disk/log-only/00000000000000000000": "the log of a broker",
    "copy/shipped/log.json": "a folder of a shipped store",
}
OWNED = {
    "lake/messages": "lake/messages",
    "lake/messages/packs": "lake/messages",
    "a/commitlog": "a/commitlog",
    "a/commitlog/x/y": "a/commitlog",
    "a/consumequeue/new": "a/consumequeue",
    "a/index/x": "a/index",
    "a/config": "a/config",
    "a/timerlog/x": "a/timerlog",
    "jmq/retry/x": "jmq/retry",
    "disk/log-only/x": "disk/log-only",
    "copy/shipped/parts": "copy/shipped",
    "copy/commitlog": "copy/commitlog",
}
FREE = ("lake", "lake/bodies", "lake/other", "a", "a/bodies", "b/commitlog", "index", "config/x", "copy", "copy/bodies")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the files of `FILES`."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    return tmp_path


@pytest.mark.parametrize("place", OWNED)
def test_a_place_in_a_folder_of_a_lake_or_a_broker_has_an_owner(place: str, root: Path) -> None:
    for spelled in (str(root / place), f"file://{root}/{place}", f"{root}/b/../{place}"):
        found = find_owned_folder(spelled)
        assert found is not None
        assert found.folder == str(root / OWNED[place])


def test_a_link_to_such_a_folder_is_resolved_and_other_places_have_no_owner(root: Path) -> None:
    (root / "link").symlink_to(root / "lake" / "messages")
    assert find_owned_folder(str(root / "link" / "x")) is not None
    assert [place for place in FREE if find_owned_folder(str(root / place))] == []


def test_a_store_whose_log_is_on_another_disk_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    assert find_owned_folder(str(tmp_path / "index" / "x")) is None
    (tmp_path / "checkpoint").touch()
    assert find_owned_folder(str(tmp_path / "index" / "x")) is not None


@pytest.mark.parametrize("place", [*OWNED, *FREE])
def test_prefixes_of_an_object_store_are_listed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def names(storage: S3Storage, prefix: str) -> list[str]:
        folder = f"{storage.text.removeprefix('s3://lakes').lstrip('/')}/".lstrip("/")
        if folder == "":
            raise S3Error("access denied", "a user may be allowed to list only some prefixes")
        return [name.removeprefix(folder) for name in FILES if name.startswith(folder + prefix)][:3]

    monkeypatch.setattr(S3Storage, "list_first_names", names)
    found = find_owned_folder(f"s3://lakes/{place}")
    assert (found and found.folder) == (f"s3://lakes/{OWNED[place]}" if place in OWNED else None)


def test_an_object_store_that_cannot_be_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(*_: object) -> list[str]:
        raise S3UnavailableError("no server", "start it")

    monkeypatch.setattr(S3Storage, "list_first_names", names)
    with pytest.raises(S3UnavailableError):
        find_owned_folder("s3://lakes/a")


def test_a_lake_that_another_run_creates_between_two_listings_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    objects: list[str] = []

    def names(storage: S3Storage, prefix: str = "") -> list[str]:
        found = [name for name in objects if name.startswith(prefix)]
        objects.append("messages/_delta_log/00000000000000000000.json")
        return found

    monkeypatch.setattr(S3Storage, "list_first_names", names)
    Lake("s3://lakes/lake", S3Options()).check_writable()


@pytest.mark.usefixtures("usual_priority")
def test_every_job_that_creates_files_refuses_such_a_place(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(root / "lake" / "messages" / "x")
    with pytest.raises(LakeError, match=r"--lake .* is in .*/lake/messages, a table of a lake"):
        Lake(place).check_writable()
    with pytest.raises(LakeError, match=r"--out .* name a place outside this folder"):
        refuse_owned_folder(place, "--out")
    assert restore.main(["--lake", str(root / "lake"), "--out", place]) == ExitCode.USAGE
    assert ship.main(["--store", str(root / "a"), "--to", place, "--once"]) == ExitCode.USAGE
    assert capsys.readouterr().err.count(f"is in {root}/lake/messages, a table of a lake") == 2
