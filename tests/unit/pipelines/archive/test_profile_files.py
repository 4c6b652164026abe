"""Profiles reach the driver in manifests and in files with the same result; memory stays bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.pipelines.archive import profile_files
from commitlake.pipelines.archive.profile_files import (
    clean_up_staged_profiles,
    max_inline_bytes,
    merge_task_profiles,
    write_staged_profile,
)
from commitlake.pipelines.quality.profile_columns import ProfileError, parse_profile
from commitlake.pipelines.quality.profile_merging import merge_profiles
from tests.support.profiles import many_windows, message, messages, profile_of

RUN = "0123abcd"
SMALL = [profile_of(messages(range(start, start + 20))) for start in (0, 20)]
LARGE = [many_windows(range(first, first + 2), broker=broker) for first in (0, 2) for broker in "xyz"]
WHOLE = merge_profiles([*SMALL, *LARGE])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A place for a lake."""
    return Lake(str(tmp_path / "lake"))


def manifest_of(lake: Lake, most_inline: int, profiles: list[pa.Table]) -> list[ManifestRow]:
    """Return the manifest rows of tasks with these profiles."""
    return [
        ManifestRow.from_task_results(
            {}, {}, "", write_staged_profile(profile, lake, RUN, f"part-{number:05d}", most_inline)
        )
        for number, profile in enumerate(profiles)
    ]


def files_of(lake: Lake) -> list[str]:
    """Return all files of the lake."""
    root = Path(lake.root)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_a_small_profile_is_in_the_manifest_and_a_large_one_in_a_file(lake: Lake) -> None:
    small, large = manifest_of(lake, max_inline_bytes(1), [SMALL[0], LARGE[0]])
    assert small.task_profile is not None
    assert parse_profile(small.task_profile.data).equals(SMALL[0])
    assert (small.profile_path, large.profile_path) == ("", f"staged/{RUN}/part-00001.arrow")
    assert len(large.profile or b"") < 1000
    assert files_of(lake) == [f"profiles/{large.profile_path}"]
    assert not large.path  # no table's


def test_each_of_many_tasks_sends_less() -> None:
    assert max_inline_bytes(1) == max_inline_bytes(2000) == 16 << 10
    assert all(count * max_inline_bytes(count) <= 32 << 20 for count in (0, 1, 3000, 10**6))


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "most_inline",
    [
        pytest.param(0, id="staged", marks=pytest.mark.long("some of the mixed ones are staged")),
        pytest.param(16 << 10, id="mixed"),
        pytest.param(1 << 30, id="inline"),
    ],
)
@pytest.mark.parametrize("most", [60, pytest.param(1000, marks=pytest.mark.long("pieces of another size")), 10**6])
def test_gathered_profiles_equal_the_whole_profile(lake: Lake, most_inline: int, most: int) -> None:
    manifest = manifest_of(lake, most_inline, [*SMALL, *LARGE])
    assert len(files_of(lake)) == {0: 8, 16 << 10: 6, 1 << 30: 0}[most_inline]
    pieces = list(merge_task_profiles(lake, [ManifestRow("messages"), *manifest], most))
    assert merge_profiles(pieces).equals(WHOLE)
    assert sum(piece.group_by(["broker", "topic"]).aggregate([]).num_rows for piece in pieces) == 301
    if most == 10**6:
        assert [piece.equals(WHOLE) for piece in pieces] == [True]
    else:
        assert len(pieces) > 2
        assert sum(map(len, pieces)) == WHOLE.num_rows  # each is merged


def test_no_profiles_give_one_empty_piece(lake: Lake) -> None:
    (nothing,) = merge_task_profiles(lake, [])
    assert not nothing.num_rows


def test_a_profile_with_null_and_empty_names_is_gathered(lake: Lake) -> None:
    odd = profile_of([message(0, broker=None), message(1, topic=None), message(2, topic=""), message(3, broker="")])
    for most_inline in (0, 1 << 20):
        pieces = merge_task_profiles(lake, manifest_of(lake, most_inline, [odd]), 2)
        assert merge_profiles(pieces).equals(odd)


def test_a_missing_truncated_or_damaged_file_is_an_error(lake: Lake) -> None:
    manifest = manifest_of(lake, 0, LARGE[:1])
    path = Path(lake.uri("profiles")) / manifest[0].profile_path
    data = path.read_bytes()
    for content, words in (
        (data[: len(data) // 2], "the file is truncated. Nothing of this commit was archived; run the command again"),
        (data[: len(data) // 2] + b"x" + data[len(data) // 2 + 1 :], "its file is damaged"),
        (b"", "the file is truncated"),
    ):
        path.write_bytes(content)
        with pytest.raises(ProfileError, match=f"part-00000.arrow: .*{words}"):
            list(merge_task_profiles(lake, manifest))
    path.unlink()
    with pytest.raises(ProfileError, match="the file with counts that a task wrote was deleted"):
        list(merge_task_profiles(lake, manifest))


def test_staged_files_are_deleted_with_the_run(lake: Lake) -> None:
    other = Path(lake.uri("profiles")) / "part-of-the-table.parquet"
    with clean_up_staged_profiles(lake, RUN) as manifest:
        manifest.extend(manifest_of(lake, 0, LARGE[:2]))
        other.write_bytes(b"x")
        assert len(files_of(lake)) == 3
    assert files_of(lake) == ["profiles/part-of-the-table.parquet"]
    assert not (Path(lake.uri("profiles")) / "staged" / RUN).exists()


def test_staged_files_of_a_failed_run_are_deleted_before_manifests_arrive(lake: Lake) -> None:
    def fail() -> None:
        with clean_up_staged_profiles(lake, RUN):
            manifest_of(lake, 0, LARGE[:2])
            assert len(files_of(lake)) == 2
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fail()
    assert files_of(lake) == []


def test_a_run_without_staged_files_deletes_none(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_files, "_delete_folder", lambda *_: pytest.fail("nothing was to be deleted"))
    with clean_up_staged_profiles(lake, RUN) as manifest:
        manifest.extend(manifest_of(lake, 1 << 20, SMALL))


BOUNDED = """
import re, sys
from pathlib import Path
from commitlake.pipelines.archive import quality_check
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.pipelines.archive.profile_files import merge_task_profiles, write_staged_profile
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.archive.profile_files import open_profiles_file
from tests.support.profiles import many_windows

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

lake, count = Lake(sys.argv[1]), int(sys.argv[2])
manifest = []
for number in range(count):
    profile = many_windows(range(number // 5 * 10, number // 5 * 10 + 10), broker=str(number % 5), topics=250)
    staged = write_staged_profile(profile, lake, "run", str(number), 0)
    manifest.append(ManifestRow.from_task_results({}, {}, "", staged))

def gather():
    rows, figures = 0, RunPageSummary()
    with open_profiles_file(lake, "run") as file:
        for piece in merge_task_profiles(lake, manifest, 20_000):
            rows += piece.num_rows
            figures.add_windows(piece)
            file.add_windows(piece)
    return rows, file.data_file.rows, figures.topics

first = list(merge_task_profiles(lake, manifest[:1]))
before = peak()
print(*gather(), peak() - before)
"""


@pytest.mark.long("a profile in many pieces is judged each time")
def test_memory_does_not_grow_with_the_windows(tmp_path: Path) -> None:
    # 300,000 windows take 120 MB as they are, and three times that while they are merged at once.
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOUNDED), str(tmp_path), "30"],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, written, topics, grown_mib = map(int, done.stdout.split())
    assert (rows, written, topics) == (300_000, 300_000, 1250)
    assert grown_mib < 150
