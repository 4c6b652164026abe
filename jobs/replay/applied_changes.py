"""`--transform` and `--mask` of a replay: changes to messages, shown and stored before anything is sent."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.replay.arguments import SendingArguments
from commitlake.jobs.report.rows_output import write_rows
from commitlake.pipelines.masking.masks import KEY_VARIABLE, check_hash_key, parse_mask
from commitlake.pipelines.replay.message_changes import (
    MessageChanges,
    Transform,
    decode_messages,
    find_changed_fields,
    mask_and_encode_messages,
)
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAMPLE = 20
_MAX_SHOWN = 200
_COLUMNS = ["msg_id", "field", "before", "after"]


def read_message_changes(arguments: SendingArguments) -> MessageChanges:
    """Return the changes of messages that the options request.

    Raises:
        JobError: if there is no such function.
        UsageError: if a mask is invalid, or needs a key.
    """
    masks = [parse_mask(text) for text in arguments.mask]
    key = os.environ.get(KEY_VARIABLE, "").encode()
    check_hash_key(masks, key)
    return MessageChanges(
        None if arguments.transform is None else _load_transform_function(arguments.transform), masks, key
    )


def print_message_changes(
    arguments: SendingArguments, lake: Lake, messages: PlannedMessages, changes: MessageChanges
) -> None:
    """Show the first messages of a plan before and after the changes, side by side."""
    rows = messages.read_rows_of_part(0, 0).slice(0, _SAMPLE)
    before, errors = decode_messages(rows, messages.read_bodies_of_rows(rows))
    before = before.filter(pa.array([error is None for error in errors], pa.bool_()))
    after = before
    spark = open_session_for_transform(lake, changes)
    if spark is not None and changes.transform is not None:
        from commitlake.pipelines.replay.spark_transform import apply_transform

        after = apply_transform(changes.transform, spark.createDataFrame(before)).toArrow().cast(before.schema)
    found = [
        {
            "msg_id": message_id,
            "field": field,
            "before": _shortened_value_text(was),
            "after": _shortened_value_text(becomes),
        }
        for message_id, field, was, becomes in find_changed_fields(before, *mask_and_encode_messages(after, changes))
    ]
    failed = len(errors) - before.num_rows
    first = "message" if rows.num_rows == 1 else f"{rows.num_rows:,} messages"
    print(f"the first {first}, before and after the changes:", file=sys.stderr)
    write_rows(arguments.output, found[:_MAX_SHOWN], _COLUMNS)
    if failed:
        print(
            f"{format_count(failed, 'of them has', 'of them have')} no body in the lake, and would not be sent",
            file=sys.stderr,
        )


def _shortened_value_text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value[:_MAX_SHOWN].decode(errors="replace")
    return None if value is None else str(value)[:_MAX_SHOWN]


def open_session_for_transform(lake: Lake, changes: MessageChanges) -> SparkSession | None:
    """Return a session that runs the function over a DataFrame; None if the messages are not changed by one."""
    if changes.transform is None:
        return None
    from commitlake.connectors.spark.session import get_session

    return get_session("replay", lake.s3)


def _load_transform_function(function_path: str) -> Transform:
    """Return the function named by `module:function` or `file.py:function`."""
    place, colon, function = function_path.rpartition(":")
    if not colon or not place or not function:
        raise JobError(
            f"--transform {function_path}: expected MODULE:FUNCTION, the name of a Python function",
            "as in fixes.orders:mend, or ./mend_orders.py:mend",
        )
    try:
        module = _load_module_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a user's module raises)
        raise JobError(
            f"--transform {function_path}: {place} cannot be loaded: {type(error).__name__}: {error}"
        ) from None
    found = getattr(module, function, None)
    if not callable(found):
        raise JobError(f"--transform {function_path}: {place} has no function {function}")
    transform: Transform = found
    return transform


def _load_module_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("expected a Python file, found another kind of file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
