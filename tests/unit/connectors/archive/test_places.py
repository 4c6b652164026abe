"""A lake's bodies are in one place, which its commits remember."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from connectors.archive.places import IN_LAKE, bodies_root, check_bodies, check_same_root
from connectors.lake.archive_log import ArchiveCommit
from connectors.lake.paths import LakeError, LakePaths
from connectors.packs.errors import PackStoreError

COMMIT = ArchiveCommit(1, "run", bodies=IN_LAKE)


def test_a_place_has_one_name_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = LakePaths(str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    for bodies in (None, "lake/bodies", f"{tmp_path}/lake/bodies/", f"file://{tmp_path}/lake/bodies"):
        assert bodies_root(lake, bodies) == IN_LAKE
        assert bodies_root(LakePaths("lake"), bodies) == IN_LAKE
    assert bodies_root(lake, "packs") == str(tmp_path / "packs")
    assert bodies_root(lake, "s3a://bucket/packs/") == "s3://bucket/packs"


@pytest.mark.parametrize(("before", "now"), [(IN_LAKE, "/packs"), ("/packs", IN_LAKE), ("/packs", "s3://bucket/packs")])
def test_a_second_place_is_refused_and_the_way_out_named(before: str, now: str) -> None:
    with pytest.raises(LakeError, match=r"the bodies of this lake are in .*, found in .* with --bodies-moved"):
        check_same_root(replace(COMMIT, bodies=before), now)


def test_the_same_place_and_one_that_is_not_known_are_no_second() -> None:
    check_same_root(COMMIT, IN_LAKE)
    check_same_root(replace(COMMIT, bodies=None), "/packs")


def test_a_commit_remembers_the_place_and_an_older_one_says_nothing_of_it() -> None:
    text = replace(COMMIT, bodies="s3://bucket/packs").to_metadata()
    found = ArchiveCommit.from_metadata(text)
    assert found is not None
    assert found.bodies == "s3://bucket/packs"
    older = ArchiveCommit.from_metadata(text.replace('"bodies": "s3://bucket/packs", ', ""))
    assert older is not None
    assert older.bodies is None


def test_what_packs_cannot_be_in_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    lake = LakePaths(str(tmp_path / "lake"))
    with pytest.raises(PackStoreError, match=r"bodies in gs://bucket/x: expected a folder.*Correct --bodies"):
        check_bodies(lake, "gs://bucket/x")
    check_bodies(lake, None)
    assert not (tmp_path / "lake").exists()
