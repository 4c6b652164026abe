"""Limits a story to the steps near the records that a question names.

Texts and outcomes are computed from the whole story first, so they do not depend on how much of it is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from commitlake.pipelines.lineage.story import Edge, Outcome, Step
from commitlake.schemas.counts import count_text


@dataclass(frozen=True)
class NearSteps:
    """The part of a story that is shown.

    Attributes:
        steps: The steps, in the story's order.
        edges: The edges between them.
        outcomes: The outcomes at these steps.
        cautions: A sentence on the steps that are left out, if there are any.
    """

    steps: Sequence[Step]
    edges: Sequence[Edge]
    outcomes: Sequence[Outcome]
    cautions: Sequence[str] = ()


def near_steps(
    steps: Sequence[Step], edges: Sequence[Edge], outcomes: Sequence[Outcome], named: Collection[str], depth: int
) -> NearSteps:
    """Return the part of a story that is at most a number of edges away from the given steps.

    Args:
        steps: All steps.
        edges: All edges.
        outcomes: All outcomes.
        named: Ids of the steps from which edges are counted.
        depth: Largest number of edges.
    """
    neighbours: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        neighbours[edge.source].add(edge.target)
        neighbours[edge.target].add(edge.source)
    near = set(named)
    border = near
    for _ in range(depth):
        border = {other for one in border for other in neighbours[one]} - near
        if not border:
            break
        near |= border
    kept = [step for step in steps if step.id in near]
    left_out = len(steps) - len(kept)
    if not left_out:
        return NearSteps(steps, edges, outcomes)
    caution = (
        f"{count_text(left_out, 'step')} more than {count_text(depth, 'edge')} away "
        f"{'is' if left_out == 1 else 'are'} left out"
    )
    return NearSteps(
        kept,
        [edge for edge in edges if edge.source in near and edge.target in near],
        [outcome for outcome in outcomes if outcome.step in near],
        [caution],
    )
