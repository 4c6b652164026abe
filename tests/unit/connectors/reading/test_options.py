"""Options are checked at once."""

from __future__ import annotations

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.options import BodyForm, Mode, ReadOptions
from commitlake.schemas.errors import UsageError


def test_defaults_need_only_a_path() -> None:
    options = ReadOptions.parse({"path": "/store"}, formats=COMMITLOGS)
    assert (options.mode, options.body, options.topics) == (Mode.FAILFAST, BodyForm.NONE, None)
    assert options.max_partition_bytes is None


def test_names_are_accepted_in_any_case_as_spark_passes_them() -> None:
    options = ReadOptions.parse(
        {"PATH": "/store", "maxpartitionbytes": "5", "MODE": "permissive", "Topics": "a, b"}, formats=COMMITLOGS
    )
    assert options.max_partition_bytes == 5
    assert options.mode is Mode.PERMISSIVE
    assert options.topics == frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pathh", "x", r"there is no option 'pathh' \(did you mean 'path'\?\): expected some of path"),
        ("mode", "LAX", "expected one of FAILFAST, PERMISSIVE, DROPMALFORMED, found 'LAX'"),
        ("body", "all", "expected one of none, stored, decompressed, found 'all'"),
        ("maxPartitionBytes", "1g", "expected a whole number, found '1g'"),
        ("maxBatchBytes", "0", "at least 1 byte, found 0"),
        ("queueIds", "1,x", "expected whole numbers"),
        ("topics", " , ", "at least one name"),
        ("keys", "a", "option keys needs the option topics"),
        ("clockTolerance", "-1", "at least 0 ms, found -1"),
        ("useIndexes", "maybe", "expected true or false, found 'maybe'"),
    ],
)
def test_the_error_for_a_wrong_option_names_the_valid_values(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReadOptions.parse({"path": "/store", name: value}, formats=COMMITLOGS)


def test_options_for_skipping_have_safe_defaults() -> None:
    options = ReadOptions.parse({"path": "/store"}, formats=COMMITLOGS)
    assert (options.use_indexes, options.clock_tolerance_ms, options.keys) == (True, 600_000, None)
    options = ReadOptions.parse(
        {"path": "/store", "topics": "t", "keys": "a, b", "useIndexes": "False", "clockTolerance": "0"},
        formats=COMMITLOGS,
    )
    assert (options.use_indexes, options.clock_tolerance_ms, options.keys) == (False, 0, frozenset({"a", "b"}))


def test_path_is_needed() -> None:
    with pytest.raises(UsageError, match="'path' is missing"):
        ReadOptions.parse({}, formats=COMMITLOGS)
