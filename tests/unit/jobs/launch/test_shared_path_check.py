"""Places that other machines can reach, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.jobs.archive.command import build_parser
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.demo import command as demo
from commitlake.jobs.launch import shared_path_check
from commitlake.jobs.launch.shared_path_check import check_shared_places, file_system_type, paths_in_options

MOUNTS = """/dev/sda1 / ext4 rw 0 0
filer:/logs /mnt/two\\040words nfs4 rw 0 0
filer:/logs /mnt/nfs nfs4 rw 0 0
tmpfs /mnt/nfs/local tmpfs rw 0 0
"""


@pytest.fixture(autouse=True)
def mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mounts of a machine."""
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(shared_path_check, "_MOUNTS", tmp_path / "mounts")


def check(*argv: str, shared: tuple[str, ...] = ()) -> None:
    """Check the arguments of an archive."""
    parser = build_parser()
    check_shared_places(parser, vars(parser.parse_args(argv)), shared)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/data", "ext4"), ("/mnt/nfs/lake", "nfs4"), ("/mnt/nfs/local/x", "tmpfs"), ("/mnt/two words", "nfs4")],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert file_system_type(Path(path)) == kind


@pytest.mark.parametrize("place", ["s3://bucket/lake", "/mnt/nfs/lake", "file:///mnt/nfs/lake", "/shared/lake"])
def test_places_that_all_machines_have_are_accepted(place: str) -> None:
    check("--store", "s3://logs/a,/mnt/nfs/b", "--lake", place, shared=("/shared",))


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["--store", "s3://a", "--lake", "/data/lake"], "--lake /data/lake: expected a place that all .* (ext4)"),
        (["--store", "s3://a", "--lake", "file:///data"], "--lake file:///data: expected a place that all .* (ext4)"),
        (["--store", "s3://a,/data", "--lake", "s3://b"], "--store /data: expected a place that all .* (ext4)"),
        (["--store", "/mnt/nfs/local", "--lake", "s3://b"], "--store /mnt/nfs/local: .* (tmpfs)"),
        (["--store", "s3://a", "--lake", "lake"], "--lake lake: expected an absolute path"),
        (["--store", "s3://a", "--lake", "/shared/../data"], "--lake /shared/../data: expected a place that all"),
        (["--store", "s3://a", "--lake", "/sharedness"], "--lake /sharedness: expected a place that all"),
        (["--store", "s3://a", "--lake", "s3://b", "--html", "run.html"], "--html run.html: expected an absolute"),
        (["--store", "s3://a", "--lake", "s3://b", "--metrics-file", "/m"], "--metrics-file /m: expected a place"),
    ],
)
def test_places_of_this_machine_are_refused(argv: list[str], found: str) -> None:
    with pytest.raises(JobError, match=found.replace("(", r"\(").replace(")", r"\)")):
        check(*argv, shared=("/shared", "relative"))


def test_the_hint_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(JobError) as refused:
        check("--store", "s3://a", "--lake", "/data/lake")
    assert "--conf spark.commitlake.sharedFolders=/data" in refused.value.hint


def test_a_system_that_does_not_tell_has_only_local_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_path_check, "_MOUNTS", tmp_path / "missing")
    with pytest.raises(JobError, match=r"\(unknown\)"):
        check("--store", "s3://a", "--lake", "/mnt/nfs/lake")
    check("--store", "s3://a", "--lake", "/mnt/nfs/lake", shared=("/mnt",))


def test_places_of_defaults_count() -> None:
    parser = demo.build_parser()
    assert ("--dir", "commitlake-demo") in list(paths_in_options(parser, vars(parser.parse_args([]))))
    assert list(paths_in_options(parser, {})) == []
