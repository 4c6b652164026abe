"""Finds the steps from archived messages to the copies that `commitlake replay` sent."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.pipelines.edges.family import Families
from commitlake.pipelines.edges.links.common import definer
from commitlake.pipelines.edges.matching import key_codes, latest_before
from commitlake.pipelines.edges.members import Role
from commitlake.pipelines.edges.spans import Spans
from commitlake.pipelines.edges.steps import FROM, absent, make_steps
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX
from commitlake.schemas.tables.edges import EdgeKind


def link_replays(f: Families, spans: Spans) -> list[pa.Table]:
    """Return the steps from archived messages to their replayed copies, found by the origin in the copies' properties.

    Copies that a broker makes of a message that was sent again keep these properties; they are left out.

    Below, R1 sent an archived message again, and R2 a dead letter of a broker that is not in the lake:

    >>> from commitlake.pipelines.edges.links.examples import LAKE, members_of, print_steps
    >>> members = members_of('''
    ...     physical_offset unique_key role topic  replay_id replay_broker replay_offset replay_topic
    ...     100             K1         sent orders -         -             -             -
    ...     200             K2         sent orders R1        a             100           orders
    ...     300             K3         sent orders R2        b             700           %DLQ%bill
    ... ''')
    >>> print_steps(link_replays(members, LAKE), "from_broker", "replay_id")
    kind     from to  outcome absent_reason from_broker replay_id
    replayed 100  200 -       -             a           R1
    redriven 700  300 -       not_yet       b           R2
    """
    is_sent = f.has("role", Role.SENT, Role.COMMITTED) & ~f.is_null("replay_id")
    sent = f.where(is_sent & ~f.is_null("replay_broker") & ~f.is_null("replay_offset"))
    everything = np.arange(len(f))
    places = ("replay_broker", "broker"), ("replay_offset", "physical_offset")
    left, right = key_codes(
        f.columns([one for one, _ in places], sent), f.columns([one for _, one in places], everything)
    )
    zeros = np.zeros(len(left), np.int64)
    found = latest_before(left, zeros + 1, right, np.zeros(len(right), np.int64))
    topics = f.column("replay_topic", sent)
    is_dead = pc.fill_null(pc.starts_with(topics, DLQ_PREFIX), False)
    brokers, offsets = f.column("replay_broker", sent), f.column("replay_offset", sent)
    return [
        make_steps(pc.if_else(is_dead, str(EdgeKind.REDRIVEN), str(EdgeKind.REPLAYED)), f.table, found, sent, {
            "from_broker": brokers,
            "from_physical_offset": offsets,
            "from_topic": topics,
            "replay_id": f.column("replay_id", sent),
            **definer(f, sent),
            **absent(FROM, found, spans.at_places(brokers, offsets)),
        })
    ]  # fmt: skip
