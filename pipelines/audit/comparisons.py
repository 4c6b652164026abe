"""The comparisons that an audit makes of a lake's sides, each with its verdict."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.formats.engine.plan import StoreRange
from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.hbase.options import Options as HBaseOptions
from commitlake.connectors.lake.delta import delta_table
from commitlake.pipelines.audit.errors import NothingInCommonError
from commitlake.pipelines.audit.moment import Moment, wait_for_hbase
from commitlake.pipelines.audit.sides import Profile, Sides, stretches_of
from commitlake.pipelines.audit.store_ranges import ranges_in_store
from commitlake.pipelines.audit.verdicts import Verdict, compare
from commitlake.pipelines.maintenance.expiry import read_expiries

BODY_FIGURES = ("messages", "bytes", "body_bytes", "checksum")


@dataclass(frozen=True)
class ComparedStores:
    """The stores that a lake is compared with.

    Attributes:
        path: as for `find_stores`.
        broker: the store's name, where the path does not tell it.
        layout: which stores of the path are meant.
    """

    path: str
    broker: str | None = None
    layout: FormatChoice = ANY_FORMAT

    def ranges(self, moment: Moment) -> tuple[Mapping[str, StoreRange], Sequence[str]]:
        """Find what can be compared, and sentences on stores of which nothing can.

        Raises:
            NothingInCommonError: where nothing can be compared.
        """
        ranges, notes = ranges_in_store(self.path, self.broker, moment.commit.stores, self.layout)
        if not ranges:
            raise NothingInCommonError(
                f"the store and the lake have nothing in common: {'; '.join(notes)}. Is it the right --store?"
            )
        return ranges, notes


def compare_runs(sides: Sides, messages: Profile, notes: Sequence[str] = ()) -> Verdict:
    """Compare what the runs counted, as far as they did, with the table.

    Args:
        sides: of the lake.
        messages: the table's profile.
        notes: for the verdict.
    """
    names = ("runs", "messages")
    counted = sides.counted()
    if counted is None:
        reason = "no run has a profile of what it took: all were archived with --no-quality, or the profiles expired"
        return Verdict(*names, notes=[*notes, reason], compared=False)
    notes = [*notes, *sides.erased.notes()]
    with sides.archived() as archived:
        sides.expect_erasures(archived, counted.stretches)
        if counted.stretches is None:
            return compare(names, archived, messages, notes=notes)
        with sides.messages(counted.stretches) as found:
            left_out = messages.totals().messages - found.totals().messages
            reason = (
                f"{left_out:,} messages are left out: {counted.runs:,} runs have no profile of what they took, as with "
                "--no-quality, or it has expired"
            )
            return compare(names, archived, found, notes=[*notes, *([reason] if left_out else [])])


def compare_packs(sides: Sides, kept: datetime.timedelta | None = None) -> Verdict:
    """Compare the table with what the packs hold; a maintain that deletes packs meanwhile is no difference.

    Args:
        sides: of the lake.
        kept: for how long bodies are kept, where a lifecycle rule deletes them.
    """
    since = _kept_since(sides.moment.expired, kept)
    while True:
        notes = [] if since is None else [f"bodies of messages stored before {since} may have expired: left out"]
        if sides.erased.count:
            notes.append(f"bodies of {sides.erased.count:,} erased messages are left out")
        with sides.with_bodies(since) as bodies:
            notes += bodies.errors
            verdict = compare(("messages", "packs"), bodies.messages, bodies.found, BODY_FIGURES, notes)
        before, since = since, _kept_since(read_expiries(delta_table(sides.lake.messages)), kept)
        if not verdict.differing or since == before:
            return verdict


def compare_store(
    sides: Sides, stores: ComparedStores, ranges: Mapping[str, StoreRange], notes: Sequence[str]
) -> Verdict:
    """Compare the stores with the table; a broker that deletes its oldest segments meanwhile is no difference.

    Args:
        sides: of the lake.
        stores: where they are.
        ranges: what can be compared.
        notes: for the verdict.
    """
    while True:
        with (
            sides.store(stores.path, stores.broker, ranges, stores.layout) as store,
            sides.messages(stretches_of(ranges)) as found,
        ):
            sides.expect_erasures(store, stretches_of(ranges))
            verdict = compare(("store", "messages"), store, found, notes=notes)
        before = ranges
        ranges, notes = stores.ranges(sides.moment)
        if not verdict.differing or ranges == before:
            return verdict


def compare_hbase(
    sides: Sides,
    messages: Profile,
    options: HBaseOptions,
    version_there: Callable[[], int | None],
    kept: datetime.timedelta | None = None,
) -> Verdict:
    """Compare the table with HBase.

    Args:
        sides: of the lake.
        messages: the table's profile.
        options: of HBase.
        version_there: returns the version of `messages` that HBase has by now.
        kept: for how long HBase keeps messages, where it drops them.

    Raises:
        NotThereYetError: if HBase does not follow in time.
    """
    wait_for_hbase(version_there, sides.moment)
    names = ("messages", "hbase")
    if kept is None:
        with sides.hbase(options) as found:
            return compare(names, messages, found)
    since = (datetime.datetime.now(datetime.UTC) - kept).date()
    notes = [f"messages that were stored before {since} may have expired there: left out"]
    recent = sides.since(since)
    with recent.messages() as expected, recent.hbase(options) as found:
        return compare(names, expected, found, notes=notes)


def _kept_since(expired: Mapping[str, datetime.date], kept: datetime.timedelta | None) -> datetime.date | None:
    """Return the first date of which all bodies must be there, or None where that is so of all."""
    dates = [expired[what] for what in ("messages", "bodies") if what in expired]
    if kept is not None:
        dates.append((datetime.datetime.now(datetime.UTC) - kept).date())
    return max(dates, default=None)
