"""Bad ranges of an index's files, by mode."""

from __future__ import annotations

import logging

import pytest

from commitlake.connectors.formats.index_entries.entry_damage import BadEntries, DamageCounter, Reason
from commitlake.connectors.reading.errors import CommitLogError
from commitlake.connectors.reading.options import Mode

_BAD = BadEntries(20, 40, Reason.ENTRY, "an entry", "zeros", b"\0")


def test_failfast_names_file_place_expected_and_found() -> None:
    with pytest.raises(CommitLogError, match="/q/0, bytes 20 to 40: entry: expected an entry, found zeros"):
        DamageCounter(Mode.FAILFAST).count_bad_range("/q/0", _BAD)


def test_permissive_describes_the_range() -> None:
    assert DamageCounter(Mode.PERMISSIVE).count_bad_range("/q/0", _BAD) == {
        "file": "/q/0",
        "start": 20,
        "end": 40,
        "reason": "entry",
        "expected": "an entry",
        "found": "zeros",
        "first_bytes": b"\0",
    }


def test_dropmalformed_logs_how_many_ranges_it_dropped(caplog: pytest.LogCaptureFixture) -> None:
    damage = DamageCounter(Mode.DROPMALFORMED)
    with caplog.at_level(logging.WARNING):
        damage.count_bad_range("/q/0", _BAD)
        damage.count_bad_range("/q/0", _BAD)
        damage.log_counts()
    assert caplog.messages == ["dropped bad ranges of the broker's indexes: 2 entry"]
