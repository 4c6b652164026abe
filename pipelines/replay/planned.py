"""The messages of a plan, part by part, as they are sent."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.packs.stores import PackStore
from commitlake.pipelines.replay.parts import Bodies, read_bodies_of, read_part
from commitlake.pipelines.replay.plan import ReplayPlan


@dataclass(frozen=True, slots=True)
class PlannedMessages:
    """The messages of a plan.

    Attributes:
        plan: what is sent.
        table: the lake's `messages`.
        packs: the lake's packs.
    """

    plan: ReplayPlan
    table: DeltaTable
    packs: PackStore

    def rows(self, number: int, before: int) -> pa.Table:
        """Return the rows of a part, in the order in which they are sent.

        Args:
            number: of the part.
            before: how many messages the parts before it have; the plan's limit counts them.

        Returns:
            `parts.COLUMNS` of `messages`.

        Raises:
            QueryError: if the table cannot be read.
        """
        plan = self.plan
        rows = read_part(self.table, plan.condition, plan.parts[number])
        return rows.slice(0, max(0, plan.limit - before)) if plan.limit else rows

    def bodies(self, rows: pa.Table) -> Bodies:
        """Return the bodies of some of these rows.

        Raises:
            PackStoreError: if the packs cannot be reached at all.
        """
        return read_bodies_of(rows, self.packs)
