"""The columns that a read gives: those of its table, or the ones that the user names."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.options import Mode


def choose_columns(table: StructType, columns: Sequence[str] | None, mode: Mode, corrupt: str) -> StructType:
    """Return the columns that the options ask for.

    Args:
        table: all columns that there are.
        columns: names, where the option `columns` is given.
        mode: PERMISSIVE has the column for bad ranges unless the option leaves it out.
        corrupt: that column's name.

    Raises:
        OptionError: for a name that is none of the table's.
    """
    if columns is None:
        return StructType([field for field in table if field.name != corrupt or mode is Mode.PERMISSIVE])
    known = {field.name: field for field in table}
    for name in columns:
        if name not in known:
            raise OptionError(f"option columns: {name!r} is not one of {', '.join(known)}")
    return StructType([known[name] for name in columns])


def check_columns(schema: StructType, table: StructType, mode: Mode, corrupt: str) -> None:
    """See that a schema, which a user may have given, has columns of a table only.

    Args:
        schema: the columns that the read is to give.
        table: all columns that there are.
        mode: PERMISSIVE needs the column for bad ranges.
        corrupt: that column's name.

    Raises:
        OptionError: for another column, another type, or without the column that the mode needs.
    """
    known = {field.name: field.dataType for field in table}
    for field in schema:
        if field.name not in known:
            raise OptionError(f"the schema's column {field.name!r} is not one of {', '.join(known)}")
        # Not the types themselves: a schema written as text cannot say that a list holds no nulls.
        if field.dataType.simpleString() != known[field.name].simpleString():
            expected = known[field.name].simpleString()
            raise OptionError(f"column {field.name}: expected {expected}, found {field.dataType.simpleString()}")
    if mode is Mode.PERMISSIVE and corrupt not in schema.fieldNames():
        raise OptionError(f"mode PERMISSIVE needs the column {corrupt}: add it, or choose DROPMALFORMED")
