"""Translation of the errors of Arrow's S3 filesystem into messages for users."""

from __future__ import annotations

import re

from commitlake.connectors.object_store.errors import S3Error, S3UnavailableError

_ERROR = re.compile(
    r"When .{1,100}?(?: key '(?P<key>[^']*)')?(?: in)? bucket '(?P<bucket>[^']*)'.*?: AWS Error (?P<code>[A-Z_]+)",
    re.DOTALL,
)
_PERMANENT = frozenset({"ACCESS_DENIED", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH"})


def s3_error_of(error: BaseException) -> S3Error | None:
    """Return the error to show for a failed request of Arrow, or None for other errors.

    Args:
        error: the error that Arrow raised, or one that it caused.
    """
    seen: BaseException | None = error
    while seen is not None:
        found = _ERROR.search(str(seen)) if isinstance(seen, OSError) else None
        if found is not None:
            return _explained(found["bucket"], found["key"] or "", found["code"])
        seen = seen.__cause__ or seen.__context__
    return None


def _explained(bucket: str, key: str, code: str) -> S3Error:
    """Explain an error by asking the server once more: Arrow does not tell wrong credentials from a denied access."""
    from commitlake.connectors.object_store.access import first_names  # noqa: PLC0415 (boto3 takes long to import)
    from commitlake.connectors.object_store.finding import s3_options  # noqa: PLC0415

    place = f"s3://{bucket}/{key}".rstrip("/")
    try:
        first_names(s3_options(), place, "")
    except S3Error as error:
        return error
    kind = S3Error if code in _PERMANENT else S3UnavailableError
    return kind(f"{place} cannot be read: found the answer {code}", "Run it again later, or see the server's log")
