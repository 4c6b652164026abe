"""A lake's bodies are in one place, which its commits remember."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.archive_commits import ArchiveCommit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackStoreError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.pipelines.archive.body_location import (
    IN_LAKE,
    bodies_root,
    check_bodies_root_unchanged,
    check_bodies_writable,
    check_outside_stores,
    find_forbidden_folder,
)
from tests.support.logs import messages, open_segment, write_store

COMMIT = ArchiveCommit(1, "run", bodies=IN_LAKE)


def test_a_place_has_one_name_for_all_its_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    for bodies in ("", "lake/bodies", f"{tmp_path}/lake/bodies/", f"file://{tmp_path}/lake/bodies"):
        assert bodies_root(replace(lake, packs=PackLocation(bodies))) == IN_LAKE
        assert bodies_root(Lake("lake", packs=PackLocation(bodies))) == IN_LAKE
    assert bodies_root(replace(lake, packs=PackLocation("packs"))) == str(tmp_path / "packs")
    assert bodies_root(replace(lake, packs=PackLocation("s3a://bucket/packs/"))) == "s3://bucket/packs"


@pytest.mark.parametrize(("before", "now"), [(IN_LAKE, "/packs"), ("/packs", IN_LAKE), ("/packs", "s3://bucket/packs")])
def test_a_second_place_is_refused_and_the_remedy_named(before: str, now: str) -> None:
    with pytest.raises(
        LakeError, match=r"the bodies of this lake are in .*, but this run would write them in .* pass --bodies-moved"
    ):
        check_bodies_root_unchanged(replace(COMMIT, bodies=before), now)


def test_the_same_place_and_any_first_place_are_accepted() -> None:
    check_bodies_root_unchanged(COMMIT, IN_LAKE)
    check_bodies_root_unchanged(replace(COMMIT, bodies=None), "/packs")


def test_a_commit_records_the_place_and_older_commits_have_none() -> None:
    text = replace(COMMIT, bodies="s3://bucket/packs").to_metadata()
    found = ArchiveCommit.from_metadata(text)
    assert found is not None
    assert found.bodies == "s3://bucket/packs"
    older = ArchiveCommit.from_metadata(text.replace('"bodies": "s3://bucket/packs", ', ""))
    assert older is not None
    assert older.bodies is None


def test_an_unsupported_place_is_refused_before_the_lake_is_made(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(PackStoreError, match=r"bodies in gs://bucket/x: expected a folder.*Correct --bodies"):
        check_bodies_writable(replace(lake, packs=PackLocation("gs://bucket/x")))
    check_bodies_writable(lake)
    assert not (tmp_path / "lake").exists()


def inside(tmp_path: Path) -> Lake:
    """Make a lake with two tables, of which one is a link to another disk."""
    (tmp_path / "lake" / "messages").mkdir(parents=True)
    (tmp_path / "disk" / "profiles").mkdir(parents=True)
    (tmp_path / "lake" / "profiles").symlink_to(tmp_path / "disk" / "profiles")
    (tmp_path / "link").symlink_to(tmp_path / "lake" / "messages")
    (tmp_path / "lake" / "messages" / "out").symlink_to(tmp_path / "disk")
    return Lake(str(tmp_path / "lake"))


@pytest.mark.parametrize(
    "bodies",
    ["lake/messages", "lake/messages/packs", "lake/messages/new/packs", "lake/archive_runs", "lake", "lake/bodies/..",
     "lake/bodies/../messages/x", "link/packs", "disk/profiles/packs", "lake/messages/out", "file:lake/messages/x",
     "lake/other"],
)  # fmt: skip
def test_bodies_in_a_folder_of_the_lake_are_refused(
    tmp_path: Path, bodies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = inside(tmp_path)
    monkeypatch.chdir(tmp_path)
    bodies = bodies.replace("file:", f"file:{tmp_path}/")
    with pytest.raises(
        LakeError, match=r"is in .*, a folder of a lake, where maintain deletes .*: name a folder outside the lake"
    ):
        check_bodies_writable(replace(lake, packs=PackLocation(bodies)))


@pytest.mark.parametrize("bodies", ["lake/bodies", "lake/bodies/packs", "packs", "lake2/messages", "disk/packs"])
def test_bodies_outside_the_lake_or_in_its_bodies_folder_are_accepted(tmp_path: Path, bodies: str) -> None:
    lake = inside(tmp_path)
    assert find_forbidden_folder(lake, str(tmp_path / bodies)) is None


def test_bodies_in_a_folder_of_another_lake_or_store_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake, table = inside(tmp_path), tmp_path / "other" / "messages"
    (table / "_delta_log").mkdir(parents=True)
    place = str(table / "packs")
    with pytest.raises(LakeError, match=r"--bodies .* is in .*/other/messages, a table of a lake"):
        check_bodies_writable(replace(lake, packs=PackLocation(place)))
    monkeypatch.setattr(
        "commitlake.pipelines.archive.body_location.read_last_commit", lambda _: replace(COMMIT, bodies=place)
    )
    check_bodies_writable(replace(lake, packs=PackLocation(place)))  # they are already there
    assert "Move all packs to a place outside the lake" in caplog.text


@pytest.mark.parametrize(
    ("bodies", "folder"),
    [
        ("s3://bucket/lake/messages/packs", "s3://bucket/lake/messages"),
        ("s3a://bucket/lake/", "s3://bucket/lake/"),
        ("s3://bucket/lake/bodies", None),
        ("s3://bucket/lake/bodies/packs", None),
        ("s3://bucket/lake2", None),
        ("s3://other/lake/messages", None),
        ("/lake/messages", None),
    ],
)
def test_places_in_an_object_store_are_compared_by_their_prefixes(bodies: str, folder: str | None) -> None:
    assert find_forbidden_folder(Lake("s3://bucket/lake", S3Options(None, "eu-central-1")), bodies) == folder


def test_bodies_within_a_table_cause_a_warning_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake, place = inside(tmp_path), str(tmp_path / "lake" / "messages" / "packs")
    monkeypatch.setattr(
        "commitlake.pipelines.archive.body_location.read_last_commit", lambda _: replace(COMMIT, bodies=place)
    )
    check_bodies_writable(replace(lake, packs=PackLocation(place)))
    assert "Move all packs to a place outside the lake" in caplog.text
    with pytest.raises(LakeError, match=r"is in .*, a folder of a lake"):
        check_bodies_writable(replace(lake, packs=PackLocation(place + "2")))


@pytest.mark.parametrize("name", ["commitlog", "commitlog/x", "index/a/b", "consumequeue/t", "config/lake", "link/x"])
@pytest.mark.parametrize("form", ["{root}/{name}", "file://{root}/{name}", "{root}/other/../{name}"])
def test_folders_of_a_broker_are_refused(name: str, form: str, tmp_path: Path) -> None:
    write_store(tmp_path, [(0, open_segment(messages(1), 4096))])
    (tmp_path / "link").symlink_to("commitlog")
    (tmp_path / "other").mkdir()
    place = form.format(root=tmp_path, name=name)
    with pytest.raises(LakeError, match="which belongs to the broker: name a folder outside it"):
        check_outside_stores(find_stores(str(tmp_path), formats=COMMITLOGS), place, "--bodies")


def test_folders_next_to_those_of_a_broker_are_accepted(tmp_path: Path) -> None:
    write_store(tmp_path, [(0, open_segment(messages(1), 4096))])
    for place in (tmp_path / "lake", tmp_path / "commitlog2", tmp_path.parent, "s3://bucket/commitlog"):
        check_outside_stores(find_stores(str(tmp_path), formats=COMMITLOGS), str(place), "--lake")
