"""Profiles of tasks in a lake in an object store: staged, read piece by piece, and deleted with the run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.pipelines.archive.profile_files import (
    clean_up_staged_profiles,
    merge_task_profiles,
    open_profiles_file,
    write_staged_profile,
)
from commitlake.pipelines.quality.profile_columns import ProfileError
from commitlake.pipelines.quality.profile_merging import merge_profiles
from tests.servers.s3 import S3Server
from tests.support.profiles import many_windows

TASKS = [many_windows(range(first, first + 2), broker=broker) for first in (0, 2) for broker in "xyz"]


def names_in(server: S3Server, bucket: str) -> Sequence[str]:
    """Return all objects of a bucket."""
    return [found["Key"] for found in server.client().list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_staged_profiles_are_gathered_and_deleted_with_the_run(s3_server: S3Server, bucket: str) -> None:
    lake = Lake(f"s3://{bucket}/some/lake")
    with clean_up_staged_profiles(lake, "run") as manifest:
        for number, profile in enumerate(TASKS):
            most_inline = 1 << 20 if number == 3 else 0
            told = write_staged_profile(profile, lake, "run", f"part-{number}", most_inline)
            manifest.append(ManifestRow.from_task_results({}, {}, "", told))
        assert len(names_in(s3_server, bucket)) == len(TASKS) - 1
        with open_profiles_file(lake, "run") as file:
            pieces = []
            for piece in merge_task_profiles(lake, manifest, 300):
                pieces.append(piece)
                file.add_windows(piece)
        assert len(pieces) > 3
        assert merge_profiles(pieces).equals(merge_profiles(TASKS))
        assert file.data_file.rows == sum(map(len, TASKS))
    assert names_in(s3_server, bucket) == ["some/lake/profiles/part-run.zstd.parquet"]
    with pytest.raises(ProfileError, match="the file with counts that a task wrote was deleted"):
        list(merge_task_profiles(lake, manifest))
