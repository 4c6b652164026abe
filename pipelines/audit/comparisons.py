"""Comparisons of a lake's sides, each with its verdict."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.formats.registry import ANY_FORMAT
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.pipelines.audit.audited_ranges import to_log_ranges
from commitlake.pipelines.audit.audited_versions import LakeState, wait_for_hbase
from commitlake.pipelines.audit.compared_sides import AuditSides
from commitlake.pipelines.audit.store_ranges import find_ranges_in_stores
from commitlake.pipelines.audit.verdicts import AuditVerdict, compare_profiles
from commitlake.pipelines.audit.window_profiles import Profile
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count

BODY_FIGURES = ("messages", "bytes", "body_bytes", "checksum")


@dataclass(frozen=True)
class ComparedStores:
    """Options for the stores that a lake is compared with.

    Attributes:
        path: path, as for `find_stores`.
        broker: name of the store, if the path does not have it.
        layout: formats of stores to take from the path.
    """

    path: str
    broker: str | None = None
    layout: Formats = ANY_FORMAT

    def find_common_ranges(self, moment: LakeState) -> tuple[Mapping[str, StoreRange], Sequence[str]]:
        """Return the ranges of logs that the stores and the lake have in common, and notes on stores without any.

        Raises:
            UsageError: if there are no such ranges.
        """
        ranges, notes = find_ranges_in_stores(self.path, self.broker, moment.commit.stores, self.layout)
        if not ranges:
            raise UsageError(
                f"the store and the lake have no messages in common: {'; '.join(notes)}. Check that --store names the "
                "right store"
            )
        return ranges, notes


def compare_run_counts(sides: AuditSides, messages: Profile, notes: Sequence[str] = ()) -> AuditVerdict:
    """Compare the message counts that archive runs recorded in `profiles` with the rows of `messages`.

    Runs without recorded counts are left out.

    Args:
        notes: notes to add to the verdict.
    """
    names = ("runs", "messages")
    counted = sides.read_counted_part()
    if counted is None:
        reason = (
            "no run has a profile of its messages: all were archived with --no-quality, or the profiles have expired"
        )
        return AuditVerdict(*names, notes=[*notes, reason], compared=False)
    notes = [*notes, *sides.erased.notes()]
    with sides.profile_run_counts() as archived:
        sides.correct_for_erasures(archived, counted.stretches)
        if counted.stretches is None:
            return compare_profiles(names, archived, messages, notes=notes)
        with sides.profile_messages(counted.stretches) as found:
            left_out = messages.count_totals().messages - found.count_totals().messages
            reason = (
                f"{format_count(left_out, 'message is', 'messages are')} left out: "
                f"{format_count(counted.runs, 'run has', 'runs have')} no profile of their messages (--no-quality, or "
                "expired)"
            )
            return compare_profiles(names, archived, found, notes=[*notes, *([reason] if left_out else [])])


def compare_packed_bodies(sides: AuditSides, retention: datetime.timedelta | None = None) -> AuditVerdict:
    """Compare `messages` with the bodies in packs, ignoring packs that `maintain` deletes in the meantime.

    Args:
        retention: age at which a lifecycle rule deletes bodies, if there is one.
    """
    since = _first_unexpired_date(sides.moment.expired, retention)
    while True:
        notes = [] if since is None else [f"bodies of messages stored before {since} may have expired: left out"]
        if sides.erased.message_count:
            notes.append(f"bodies of {sides.erased.message_count:,} erased messages are left out")
        with sides.profile_bodies(since) as bodies:
            notes += bodies.errors
            verdict = compare_profiles(("messages", "packs"), bodies.messages, bodies.found, BODY_FIGURES, notes)
        before, since = (
            since,
            _first_unexpired_date(read_expiries(sides.lake.unpin_versions().table("messages")), retention),
        )
        if not verdict.differing or since == before:
            return verdict


def compare_store_logs(
    sides: AuditSides, stores: ComparedStores, ranges: Mapping[str, StoreRange], notes: Sequence[str]
) -> AuditVerdict:
    """Compare the stores' logs with `messages`, ignoring segments that a broker deletes in the meantime.

    Args:
        ranges: ranges to compare.
        notes: notes to add to the verdict.
    """
    while True:
        with (
            sides.profile_stores(stores.path, stores.broker, ranges, stores.layout) as store,
            sides.profile_messages(to_log_ranges(ranges)) as found,
        ):
            sides.correct_store_for_erasures(store, to_log_ranges(ranges))
            verdict = compare_profiles(("store", "messages"), store, found, notes=notes)
        before = ranges
        ranges, notes = stores.find_common_ranges(sides.moment)
        if not verdict.differing or ranges == before:
            return verdict


def compare_hbase(
    sides: AuditSides,
    messages: Profile,
    options: HBaseOptions,
    read_hbase_version: Callable[[], int | None],
    retention: datetime.timedelta | None = None,
) -> AuditVerdict:
    """Compare the rows of `messages` with those in HBase.

    Args:
        options: options for HBase.
        read_hbase_version: returns the version of `messages` that HBase has.
        retention: age at which HBase drops messages, if it does.

    Raises:
        UnavailableError: if HBase does not reach the version in time.
    """
    wait_for_hbase(read_hbase_version, sides.moment)
    names = ("messages", "hbase")
    if retention is None:
        with sides.profile_hbase(options) as found:
            return compare_profiles(names, messages, found)
    since = (datetime.datetime.now(datetime.UTC) - retention).date()
    notes = [f"messages stored before {since} may have expired in HBase: left out"]
    recent = sides.limit_to_dates_from(since)
    with recent.profile_messages() as expected, recent.profile_hbase(options) as found:
        return compare_profiles(names, expected, found, notes=notes)


def _first_unexpired_date(
    expired: Mapping[str, datetime.date], retention: datetime.timedelta | None
) -> datetime.date | None:
    """Return the first date whose bodies must all exist in the packs; None if no bodies have expired."""
    dates = [expired[what] for what in ("messages", "bodies") if what in expired]
    if retention is not None:
        dates.append((datetime.datetime.now(datetime.UTC) - retention).date())
    return max(dates, default=None)
