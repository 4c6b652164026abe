"""Which messages a consumer wants: by the hash of their tag, or by an SQL92 expression over their properties."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from broker_lite.broker.sql92 import SqlError, compile_sql92
from schemas.layouts.commitlog import parse_message
from schemas.remoting.heartbeats import SQL92_EXPRESSION, TAG_EXPRESSION, SubscriptionData

QueueCodes = Callable[[Collection[str], Collection[int]], frozenset[int] | None]


class FilterError(ValueError):
    """An expression that is none."""


class Filter(NamedTuple):
    """A consumer's choice.

    Attributes:
        codes: hashes of the tags that are wanted; None for all.
        accepts_record: whether a stored record is wanted; None for all.
    """

    codes: frozenset[int] | None = None
    accepts_record: Callable[[bytes], bool] | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self.codes is None and self.accepts_record is None


EVERYTHING = Filter()


def _as_sent(_tags: Collection[str], codes: Collection[int]) -> frozenset[int]:
    return frozenset(codes)


def filter_of(subscription: SubscriptionData, queue_codes: QueueCodes = _as_sent) -> Filter:
    """The filter for a subscription.

    Args:
        subscription: a consumer's.
        queue_codes: see `BrokerStore.queue_codes`.

    Raises:
        FilterError: if its expression is none.
    """
    if subscription.class_filter_mode:
        return EVERYTHING
    if subscription.expression_type == TAG_EXPRESSION:
        if not subscription.code_set:
            return EVERYTHING
        return Filter(queue_codes(subscription.tags_set, subscription.code_set))
    if subscription.expression_type != SQL92_EXPRESSION:
        raise FilterError(f"expected the expression type TAG or SQL92, found {subscription.expression_type[:80]!r}")
    try:
        condition = compile_sql92(subscription.sub_string)
    except SqlError as error:
        raise FilterError(str(error)) from error

    def accepts(record: bytes) -> bool:
        parsed = parse_message(record, verify_crc=False)
        return parsed is not None and condition(parsed[0].properties)

    return Filter(accepts_record=accepts)
