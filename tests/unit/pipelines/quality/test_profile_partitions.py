"""A profile in partitions equals the whole profile for any division; a damaged one is an error."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from commitlake.pipelines.quality.profile_columns import SCHEMA, ProfileError
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.pipelines.quality.profile_partitions import (
    PARTITIONS,
    PartitionGroup,
    PartitionIndex,
    group_partitions,
    parse_partitions,
    partition_row_counts,
    select_group_rows,
    serialize_partitions,
)
from tests.support.profiles import many_windows, message, profile_of

PROFILE = merge_profiles(
    [
        many_windows(range(3), topics=150),
        many_windows(range(2), broker="b", topics=20),
        profile_of([message(0, broker=None), message(1, topic=None), message(2, topic="")]),
    ]
)
DATA, INDEX = serialize_partitions(PROFILE)
ALL = PartitionGroup()


def part_of(group: PartitionGroup, data: pa.Buffer = DATA, index: PartitionIndex = INDEX) -> pa.Table:
    """Return the rows of a group, from the bytes that the index names."""
    offset, length = index.byte_range(group)
    return parse_partitions(data[offset : offset + length].to_pybytes(), index, group)


def topics_of(profile: pa.Table) -> set[tuple[str | None, str | None]]:
    """Return the topics of a part."""
    return set(zip(*(profile.column(name).to_pylist() for name in ("broker", "topic")), strict=True))


@pytest.mark.parametrize("most", [10, 500, 10**6])
def test_groups_together_equal_the_whole_and_divide_no_topic(most: int) -> None:
    groups = group_partitions(INDEX.row_counts, most)
    parts = [part_of(group) for group in groups]
    assert merge_profiles(parts).equals(PROFILE)
    assert sum(len(topics_of(part)) for part in parts) == len(topics_of(PROFILE))
    assert (len(groups) == 1) == (most == 10**6)
    assert all(
        select_group_rows(PROFILE, group).num_rows == part.num_rows for group, part in zip(groups, parts, strict=True)
    )


def test_a_file_is_in_arrow_format_with_counts_of_its_parts() -> None:
    with pa.ipc.open_file(DATA) as reader:
        assert merge_profiles([reader.read_all()]).equals(PROFILE)
    assert INDEX.row_counts.tolist() == partition_row_counts(PROFILE).tolist()
    again = PartitionIndex.from_bytes(INDEX.to_bytes())
    assert (again.begin, again.parts.tolist()) == (INDEX.begin, INDEX.parts.tolist())


def test_a_topic_is_in_one_partition_of_every_file() -> None:
    places = defaultdict(set)
    for profile in (PROFILE, PROFILE.slice(700), many_windows(range(9, 10), topics=150)):
        _, index = serialize_partitions(profile)
        for number in np.flatnonzero(index.row_counts).tolist():
            for topic in topics_of(select_group_rows(profile, PartitionGroup(number, number + 1))):
                places[topic].add(number)
    assert {len(found) for found in places.values()} == {1}
    assert len(set.union(*places.values())) > PARTITIONS / 2


def test_a_partition_that_is_too_large_is_divided() -> None:
    rows = [0] * PARTITIONS
    rows[5], rows[6], rows[7] = 10, 95, 10
    groups = group_partitions(rows, 30)
    assert groups == [
        PartitionGroup(0, 6),
        *(PartitionGroup(6, 7, share, 4) for share in range(4)),
        PartitionGroup(7, 64),
    ]
    assert group_partitions([0] * PARTITIONS) == [ALL]
    # Many topics of one partition: each share has about as many of them.
    profile = many_windows(range(1), topics=64 * 120, queues=1)
    sizes = [select_group_rows(profile, PartitionGroup(3, 4, share, 4)).num_rows for share in range(4)]
    assert sum(sizes) == partition_row_counts(profile)[3]
    assert min(sizes) > 10


def test_a_profile_without_rows_has_no_batches() -> None:
    data, index = serialize_partitions(SCHEMA.empty_table())
    assert index.byte_range(ALL)[1] == 0
    assert part_of(ALL, data, index).num_rows == 0


def test_other_bytes_than_those_written_are_an_error() -> None:
    offset, length = INDEX.byte_range(ALL)
    data = DATA[offset : offset + length].to_pybytes()
    for cut in (0, 1, length // 2, length - 1):
        with pytest.raises(
            ProfileError, match=rf"expected {length} bytes of a profile at position {offset} of its file, found {cut}"
        ):
            parse_partitions(data[:cut], INDEX, ALL)
    for place in range(0, length, 997):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(ProfileError, match="its file is damaged"):
            parse_partitions(bytes(damaged), INDEX, ALL)


def test_an_index_that_is_wrong_is_an_error() -> None:
    with pytest.raises(ProfileError, match="expected an index of 772 bytes for the partitions of a profile, found 3"):
        PartitionIndex.from_bytes(b"123")
    lying = PartitionIndex(INDEX.begin, INDEX.parts.copy())
    lying.parts["rows"][0] += 1
    with pytest.raises(ProfileError, match=f"expected {PROFILE.num_rows + 1:,} rows of a profile"):
        part_of(ALL, DATA, lying)
    nothing = serialize_partitions(many_windows(range(1), topics=1))[1]
    noise = PartitionIndex(0, nothing.parts.copy())
    noise.parts["size"] = 0
    noise.parts["size"][0], noise.parts["crc"] = 4, 0
    noise.parts["crc"][0] = 0x2144DF1C  # of four zeros, which end a stream of Arrow's
    with pytest.raises(ProfileError, match="expected 4 rows of a profile, found 0"):
        parse_partitions(bytes(4), noise, ALL)
