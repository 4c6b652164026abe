"""Checks of SELECT statements before Spark runs them: no other files, no commands, no calls of Java methods.

Spark's SQL allows all of that in a query: csv.`/etc/passwd` is a table, TRANSFORM (...) USING 'command' runs a command
for each partition, and reflect('class', 'method') calls any static method. The analyzed plan shows each of them,
however the SELECT is written, before anything runs; only the columns of files are read by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from commitlake.schemas.errors import UsageError

_COMMANDS = frozenset({"ScriptTransformation", "ScriptInputOutputSchema"})
_CALLS = frozenset({"CallMethodViaReflection", "TryReflect"})
_TABLES = frozenset(
    {"LogicalRelation", "LogicalRelationWithTable", "DataSourceV2Relation", "StreamingRelation", "HiveTableRelation"}
)


def find_refusal_reason(query: DataFrame, allowed_uris: Collection[str]) -> str | None:
    """Return why a query must not run, or None if it only reads the given tables.

    Args:
        query: DataFrame of the query, which has not run.
        allowed_uris: Delta tables that it may read; empty for any.

    Raises:
        UsageError: if the session does not show plans.
    """
    java_frame = getattr(query, "_jdf", None)
    if java_frame is None:
        raise UsageError(
            "a Spark Connect session does not show the plan of a SELECT, so the SELECT cannot be checked before it "
            "runs. Leave out --spark or --engine spark, and this process reads the lake itself"
        )
    allowed = {_bucket_and_path(uri) for uri in allowed_uris}
    for node in _plan_nodes(java_frame.queryExecution().analyzed()):
        name = node.getClass().getSimpleName()
        if name in _COMMANDS:
            return "TRANSFORM runs a command: expected a SELECT that only reads"
        if allowed and name in _TABLES and _table_location(node) not in allowed:
            return "a SELECT may only read tables of the lake by name, not other files or tables"
        if any(each.getClass().getSimpleName() in _CALLS for each in _expressions_of_node(node)):
            return "reflect and java_method call Java methods: expected a SELECT that only reads"
    return None


def _plan_nodes(root: Any) -> Iterator[Any]:
    # Subqueries are in expressions, and no children of the node that has them.
    left = [root, *_sequence_items(root.subqueriesAll())]
    while left:
        node = left.pop()
        left += _sequence_items(node.children())
        yield node


def _expressions_of_node(node: Any) -> Iterator[Any]:
    left = list(_sequence_items(node.expressions()))
    while left:
        expression = left.pop()
        left += _sequence_items(expression.children())
        yield expression


def _sequence_items(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    return (sequence.apply(number) for number in range(sequence.size()))


def _table_location(node: Any) -> tuple[str, str] | None:
    """Return the location of the Delta table that a plan node reads, or None for other nodes."""
    try:
        roots = node.relation().location().rootPaths()
        return _bucket_and_path(roots.apply(0).toString()) if roots.size() == 1 else None
    except Py4JError:  # another kind of relation, without such a method
        return None


def _bucket_and_path(uri: str) -> tuple[str, str]:
    """Return the bucket and the path of a URI; the bucket is empty for a local path or `file:` URI."""
    parts = urlsplit(uri)
    return parts.netloc, parts.path.rstrip("/")
