"""The most frequent paths of journeys, and the keys that do not fit, from journeys as Arrow tables.

Keys that began before the window are left out, as their paths may lack steps.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import join_chunks
from commitlake.connectors.numpy_arrays import Array

RARE_PERCENT = 1
"""Share of keys below which their path is unexpected."""
UNEXPECTED = "unexpected path"
BETWEEN = "\x1f"
"""Separates topics of a path in a text, of which no topic has it."""


@dataclass(frozen=True, slots=True)
class MisfitRules:
    """Conditions that find business keys with an unexpected path over topics.

    A key must meet `missing`, `stuck` or `is_unexpected`, if any is set.

    Attributes:
        known_until: time until which records are known.
        through: topics that are all in the path of the keys.
        missing: topics, of which one is not in their path.
        stuck: topics that are the last of their path for longer than a time.
        is_unexpected: True for keys with a path that few keys have.
    """

    known_until: datetime.datetime
    through: Sequence[str] = ()
    missing: Sequence[str] = ()
    stuck: Sequence[tuple[str, datetime.timedelta]] = ()
    is_unexpected: bool = False

    @property
    def has_conditions(self) -> bool:
        """True if any condition on paths is set."""
        return bool(self.through or self.missing or self.stuck or self.is_unexpected)

    @property
    def needs_reason(self) -> bool:
        """True if keys must lack a topic, be stuck, or be on a rare path, not only pass through some topics."""
        return bool(self.missing or self.stuck or self.is_unexpected)


def missing_topic_reason(topic: str) -> str:
    """Return the reason text for keys whose path lacks the given topic."""
    return f"missing {topic}"


def stuck_topic_reason(topic: str) -> str:
    """Return the reason text for keys that have stayed in the given topic for too long."""
    return f"stuck after {topic}"


def count_keys_by_path(journeys: pa.Table) -> pa.Table:
    """Count the keys of each path over topics: all keys, keys with a dead letter, and keys that still wait."""
    began_here = journeys.filter(pc.invert(journeys.column("began_before")))
    outcomes = began_here.column("outcome")
    counts = {
        "path": _path_texts(began_here),
        "keys": np.ones(began_here.num_rows, np.int64),
        "dead": pc.equal(outcomes, "dead").cast(pa.int64()),
        "open": pc.is_in(outcomes, pa.array(["prepared", "waiting"])).cast(pa.int64()),
    }
    return _sum_by_path(pa.table(counts))


def sum_path_counts(count_tables: Iterable[pa.Table]) -> pa.Table:
    """Add up tables of key counts by path, and sort the paths by their number of keys, largest first."""
    return _sum_by_path(pa.concat_tables(count_tables)).sort_by([("keys", "descending"), ("path", "ascending")])


def _sum_by_path(counts: pa.Table) -> pa.Table:
    names = ["keys", "dead", "open"]
    return counts.group_by("path").aggregate([(name, "sum") for name in names]).rename_columns(["path", *names])


def paths_to_topic_lists(counts: pa.Table) -> pa.Table:
    """Return key counts by path, with `path` as a list of topics instead of a text."""
    return counts.set_column(0, "path", pc.split_pattern(counts.column("path"), BETWEEN))


def first_keys_by_path(
    journeys: pa.Table, paths: Sequence[tuple[str, ...]], limit: int
) -> Mapping[tuple[str, ...], Sequence[str]]:
    """Return, for each given path, the first `limit` keys that took it."""
    began_here = journeys.filter(pc.invert(journeys.column("began_before")))
    texts, keys = _path_texts(began_here), began_here.column("key")
    found = {}
    for path in paths:
        rows = pc.indices_nonzero(pc.equal(texts, BETWEEN.join(path)))
        found[path] = keys.take(rows.slice(0, limit)).to_pylist()
    return found


def rare_paths(counts: pa.Table) -> pa.Array:
    """Return the paths that less than `RARE_PERCENT` percent of all keys have."""
    keys = counts.column("keys").to_numpy()
    return join_chunks(counts.column("path")).take(pa.array(np.flatnonzero(keys * 100 < keys.sum() * RARE_PERCENT)))


def misfits_of_table(journeys: pa.Table, criteria: MisfitRules, rare_path_texts: pa.Array | None = None) -> pa.Table:
    """Return the journeys of the keys that meet `criteria`, in the same order, with the reasons why.

    Args:
        journeys: journeys of some keys.
        criteria: the question.
        rare_path_texts: the result of `rare_paths`, if the question asks for unexpected paths.
    """
    began_here = journeys.filter(pc.invert(journeys.column("began_before")))
    chosen = np.ones(began_here.num_rows, bool)
    for topic in criteria.through:
        chosen &= _has_topic(began_here, topic)
    reasons = _reason_masks(began_here, criteria, rare_path_texts)
    any_reason = reduce(or_, reasons.values(), np.full(began_here.num_rows, not criteria.needs_reason))
    rows = np.flatnonzero(chosen & any_reason)
    texts = [[text for text, mask in reasons.items() if mask[row]] for row in rows.tolist()]
    found = began_here.take(pa.array(rows))
    return found.append_column("reasons", pa.array(texts, pa.list_(pa.string())))


def _reason_masks(journeys: pa.Table, criteria: MisfitRules, rare_path_texts: pa.Array | None) -> dict[str, Array]:
    is_cut = journeys.column("is_cut").to_numpy()
    found = {missing_topic_reason(topic): ~_has_topic(journeys, topic) & ~is_cut for topic in criteria.missing}
    for topic, length in criteria.stuck:
        is_last = pc.equal(journeys.column("last_topic"), topic)
        is_old = pc.less_equal(journeys.column("last_sent_at"), pa.scalar(criteria.known_until - length))
        found[stuck_topic_reason(topic)] = pc.and_(is_last, is_old).to_numpy()
    if rare_path_texts is not None:
        found[UNEXPECTED] = pc.is_in(_path_texts(journeys), rare_path_texts).to_numpy()
    return found


def _path_texts(journeys: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join(journeys.column("path").cast(pa.list_(pa.string())), BETWEEN)


def _has_topic(journeys: pa.Table, topic: str) -> Array:
    paths = join_chunks(journeys.column("path"))
    is_topic = pc.equal(paths.flatten(), topic)
    found = np.zeros(journeys.num_rows, bool)
    found[pc.list_parent_indices(paths).filter(is_topic).to_numpy()] = True
    return found
