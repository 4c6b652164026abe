"""Serialization of a profile: as bytes from a task to the driver, and as rows of the table `profiles`."""

from __future__ import annotations

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.pipelines.quality.errors import ProfileError
from commitlake.pipelines.quality.parts import SCHEMA
from commitlake.schemas.tables.profile import PROFILES, RUN_ID

PROFILES_SCHEMA = arrow_schema(PROFILES)
"""Schema of the table `profiles`."""


def serialize_profile(profile: pa.Table) -> bytes:
    """Serialize a profile for a column of a task's manifest, in about a hundred bytes per window."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(profile)
    return bytes(sink.getvalue())


def parse_profile(data: bytes) -> pa.Table:
    """Parse the result of `serialize_profile`.

    Raises:
        ProfileError: if the bytes are not a profile.
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
    except pa.ArrowInvalid as error:
        raise ProfileError(f"expected a profile as bytes, found {len(data)} others: {error}") from error
    if table.schema != SCHEMA:
        raise ProfileError(f"expected the columns of a profile, found {', '.join(table.schema.names)}")
    return table


def to_profiles(profile: pa.Table, run_id: str) -> pa.Table:
    """Return a run's profile as rows of the table `profiles`.

    Args:
        run_id: id of the archive run.
    """
    run_ids = pa.repeat(pa.scalar(run_id, pa.string()), profile.num_rows)
    return profile.select(SCHEMA.names).append_column(RUN_ID.name, run_ids).cast(PROFILES_SCHEMA)
