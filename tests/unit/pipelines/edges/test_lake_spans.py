"""Extents of brokers, and the parts of them that are linked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlake.pipelines.edges.lake_spans import LakeSpan, Spans

SPANS = Spans(
    {"a": LakeSpan(0, 900, 0, 100), "b": LakeSpan(0, 900, 0, 50), "c": LakeSpan(0, 900, 0, 70)},
    linked_us={"a": 40, "b": 50},
    complete_us={"a": 80},
)


def test_rows_are_complete_before_the_first_row_that_is_not_linked() -> None:
    brokers = pa.array(["a", "a", "b", "b", "x", None])
    assert SPANS.are_complete(brokers, np.array([79, 80, 49, 50, 0, 0])).tolist() == [
        True, False, True, False, False, False,
    ]  # fmt: skip


def test_times_are_newly_complete_if_an_increment_of_any_broker_passes_them() -> None:
    # a: from 40 to 80; b: nothing new; c: all of it, up to 70
    assert SPANS.are_newly_complete(np.array([0, 39, 69, 70, 79, 80, 99])).tolist() == [
        True, True, True, True, True, False, False,
    ]  # fmt: skip
    without_c = Spans({"a": SPANS.brokers["a"], "b": SPANS.brokers["b"]}, linked_us={"a": 40, "b": 50})
    assert without_c.are_newly_complete(np.array([39, 40, 99, 100])).tolist() == [False, True, True, False]
