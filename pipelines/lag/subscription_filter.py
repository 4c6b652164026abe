"""Tests which messages of a topic a group wants, by its subscription, on Arrow batches.

Tags are compared as strings, as clients do. (A broker compares only their hashes, which two tags can share.) SQL92 is
evaluated once for each distinct combination of values of the properties that the expression uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.remoting.heartbeats import ALL_TAGS, SQL92_EXPRESSION, TAG_EXPRESSION, parse_tag_expression
from commitlake.schemas.remoting.sql92 import SqlError, compile_sql92, property_names


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """The filter of a group's subscription to a topic, as a broker evaluates it.

    Attributes:
        expression_type: TAG or SQL92; None if the subscription is not known, so that every message counts.
        expression: Expression of the subscription.
        problem: Reason why the expression cannot be evaluated; every message counts then.
    """

    expression_type: str | None = None
    expression: str = ALL_TAGS
    problem: str = ""

    @classmethod
    def of(cls, expression_type: str, expression: str) -> SubscriptionFilter:
        """Return the filter for a subscription's type and expression."""
        if expression_type == TAG_EXPRESSION:
            return cls(TAG_EXPRESSION, expression)
        if expression_type != SQL92_EXPRESSION:
            return cls(None, expression, f"expected a filter of type TAG or SQL92, found {expression_type}")
        try:
            compile_sql92(expression)
        except SqlError as error:
            return cls(None, expression, f"the filter is not valid SQL92: {error}")
        return cls(SQL92_EXPRESSION, expression)

    @property
    def tags(self) -> frozenset[str] | None:
        """Tags that the group wants; None for all tags, and for an SQL92 filter."""
        tags = parse_tag_expression(self.expression) if self.expression_type == TAG_EXPRESSION else None
        return None if tags is None else frozenset(tags)

    @property
    def is_known(self) -> bool:
        """True if it is known which messages the group wants."""
        return self.expression_type is not None

    @property
    def selects_all(self) -> bool:
        """True if the group wants every message."""
        return self.expression_type != SQL92_EXPRESSION and self.tags is None

    @property
    def needs_properties(self) -> bool:
        """True if the column `properties` is needed to evaluate the filter."""
        return self.expression_type == SQL92_EXPRESSION

    def select_rows(self, batch: pa.RecordBatch) -> Array:
        """Return a mask of the rows of a batch that the subscription wants.

        Args:
            batch: Has the column `tags`, and `properties` if needed.
        """
        if self.selects_all:
            return np.ones(batch.num_rows, bool)
        if (tags := self.tags) is not None:
            found = pc.is_in(batch.column("tags").cast(pa.string()), value_set=pa.array(sorted(tags), pa.string()))
            return np.asarray(found.to_numpy(zero_copy_only=False), bool)
        return _select_by_sql92(self.expression, batch.column("properties"))


ALL = SubscriptionFilter(TAG_EXPRESSION)
"""Choice of every message."""


def _select_by_sql92(expression: str, properties: pa.MapArray) -> Array:
    condition, names = compile_sql92(expression), sorted(property_names(expression))
    columns = [_dictionary_encode_property(properties, name) for name in names]
    codes = np.zeros(len(properties), np.int64)
    for values, indices in columns:
        # The codes are renumbered after each property, so that their product cannot overflow.
        codes = np.unique(codes * len(values) + indices, return_inverse=True)[1].reshape(-1)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    accepted = np.zeros(len(first), bool)
    for place, row in enumerate(first.tolist()):
        found = {name: values[indices[row]] for name, (values, indices) in zip(names, columns, strict=True)}
        accepted[place] = condition({name: value for name, value in found.items() if value is not None})
    return accepted[inverse.reshape(-1)]


def _dictionary_encode_property(properties: pa.MapArray, name: str) -> tuple[list[str | None], Array]:
    """Return the distinct values of a property, with None last, and for each row the index of its value."""
    column = pc.map_lookup(properties, pa.scalar(name, properties.type.key_type), "last")
    encoded = column.cast(pa.string()).dictionary_encode()
    values: list[str | None] = [*encoded.dictionary.to_pylist(), None]
    return values, encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
