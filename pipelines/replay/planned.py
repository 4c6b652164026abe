"""Messages of a plan, part by part, as they are sent."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.stores import PackStore
from commitlake.pipelines.replay.changed_rows import bodies_of_changed, read_changed
from commitlake.pipelines.replay.inner_batches import bodies_of_split, split_inner_batches
from commitlake.pipelines.replay.parts import StoredBodies, bodies_in_rows, read_bodies_of, read_part
from commitlake.pipelines.replay.plan import ReplayPlan
from commitlake.schemas.tables.replay_messages import SendOutcome


@dataclass(frozen=True, slots=True)
class PlannedMessages:
    """Messages of a plan.

    Attributes:
        plan: the plan.
        table: the lake's `messages`, or `replay_rows` if the replay changes or copies messages; before these are
            written, `messages` as copied from a log or from topics.
        packs: the lake's packs; None if the table has the bodies.
    """

    plan: ReplayPlan
    table: DeltaTable
    packs: PackStore | None

    def rows(self, number: int, before: int) -> pa.Table:
        """Return the rows of a part, in the order of sending.

        Args:
            number: index of the part.
            before: number of messages in the parts before it, which count for the plan's limit.

        Returns:
            `parts.COLUMNS` of `messages`; an inner batch has a row for each of its messages.

        Raises:
            QueryError: if the table cannot be read.
            PackStoreError: if the packs cannot be reached.
        """
        plan = self.plan
        read = read_changed if plan.is_changed else read_part
        rows = split_inner_batches(read(self.table, plan.condition, plan.parts[number]), self._stored_bodies)
        return rows.slice(0, max(0, plan.limit - before)) if plan.limit else rows

    def bodies(self, rows: pa.Table) -> StoredBodies:
        """Return the bodies of rows that `rows` returned.

        Raises:
            PackStoreError: if the packs cannot be reached.
        """
        return bodies_of_split(rows, self._stored_bodies)

    def _stored_bodies(self, rows: pa.Table) -> StoredBodies:
        if self.plan.is_changed:
            return bodies_of_changed(rows)
        return bodies_in_rows(rows) if self.packs is None else read_bodies_of(rows, self.packs)

    @property
    def failure(self) -> SendOutcome:
        """Outcome of a message whose body cannot be sent."""
        return SendOutcome.NOT_CHANGED if self.plan.is_changed else SendOutcome.NO_BODY


def open_planned(lake: Lake, plan: ReplayPlan, packs: PackStore) -> PlannedMessages:
    """Open the messages of a plan from the ledger.

    Raises:
        LakeError: if the lake cannot be read.
    """
    return PlannedMessages(plan, lake.table("replay_rows" if plan.is_changed else "messages"), packs)
