"""Message filters of consumers: by the hash of the tag, or by an SQL92 expression over the properties."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.rocketmq.commitlog import parse_message
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION, TAG_EXPRESSION, SubscriptionData
from commitlake.schemas.remoting.sql92 import PausableProperties, PausedError, SqlError, compile_sql92

MAX_EXPRESSION_LENGTH = 16_384
"""Limit on a tag expression or an SQL92 expression, in characters; RocketMQ has no limit."""
MAX_TAGS = MAX_EXPRESSION_LENGTH // len("a||")
"""Largest number of tags in an expression of that length; clients also send the tags and their hashes separately."""

QueueCodes = Callable[[Collection[str], Collection[int]], frozenset[int] | None]


class FilterError(CommitLakeError, ValueError):
    """Error for a filter expression that is invalid or too long."""


class Filter(NamedTuple):
    """Filter of a consumer: conditions on a message's tag hash and on its record.

    Attributes:
        codes: hashes of the wanted tags; None for all tags.
        accepts_record: function that returns whether a stored record matches; None if all records match. It raises
            PausedError if that takes longer than a few milliseconds, and continues when it is called again.
    """

    codes: frozenset[int] | None = None
    accepts_record: Callable[[bytes], bool] | None = None


EVERYTHING = Filter()


def check_subscription(subscription: SubscriptionData) -> None:
    """Raise an error if a subscription is too long to be parsed or stored cheaply.

    Raises:
        FilterError: if an expression or the list of tags is too long.
    """
    check_expression_length(subscription.sub_string)
    tags = max(len(subscription.tags_set), len(subscription.code_set))
    characters = sum(map(len, subscription.tags_set))
    if tags > MAX_TAGS or characters > MAX_EXPRESSION_LENGTH:
        raise FilterError(
            f"expected a filter of at most {MAX_TAGS} tags and {MAX_EXPRESSION_LENGTH} characters, found {tags} tags "
            f"and {characters} characters"
        )


def check_expression_length(expression: str) -> None:
    """Raise `FilterError` if an expression is too long."""
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise FilterError(f"expected a filter of at most {MAX_EXPRESSION_LENGTH} characters, found {len(expression)}")


def _client_tag_codes(_tags: Collection[str], tag_codes: Collection[int]) -> frozenset[int]:
    return frozenset(tag_codes)


def compile_filter(
    subscription: SubscriptionData, tag_codes_in_queue_entries: QueueCodes = _client_tag_codes
) -> Filter:
    """Return the filter that a subscription describes.

    Args:
        subscription: subscription of a consumer.
        tag_codes_in_queue_entries: see `BrokerStore.tag_codes_in_queue_entries`.

    Raises:
        FilterError: if the expression is invalid.
    """
    check_subscription(subscription)
    if subscription.class_filter_mode:
        return EVERYTHING
    if subscription.expression_type == TAG_EXPRESSION:
        if not subscription.code_set:
            return EVERYTHING
        return Filter(tag_codes_in_queue_entries(subscription.tags_set, subscription.code_set))
    if subscription.expression_type != SQL92_EXPRESSION:
        raise FilterError(f"expected the expression type TAG or SQL92, found {subscription.expression_type[:80]!r}")
    try:
        condition = compile_sql92(subscription.sub_string)
    except SqlError as error:
        raise FilterError(str(error)) from error

    return Filter(accepts_record=_PausableCondition(condition))


class _PausableCondition:
    """Function that checks a record against an SQL92 expression; if it pauses, the next call continues the check."""

    def __init__(self, condition: Callable[[PausableProperties], bool]) -> None:
        self._condition = condition
        self._paused: tuple[bytes, PausableProperties] | None = None

    def __call__(self, record: bytes) -> bool:
        if self._paused is not None and self._paused[0] == record:
            properties = self._paused[1]
        else:
            parsed = parse_message(record, verify_crc=False)
            if parsed is None:
                return False
            properties = PausableProperties(parsed[0].properties)
        self._paused = None
        try:
            return self._condition(properties)
        except PausedError:
            self._paused = record, properties
            raise
