"""Translation of the S3 errors of Arrow and of deltalake, which have many lines, into messages for users."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.connectors.storage.s3_options import S3Options

_ERROR = re.compile(
    r"When .{1,100}?(?: key '(?P<key>[^']*)')?(?: in)? bucket '(?P<bucket>[^']*)'.*?: AWS Error (?P<code>[A-Z_]+)",
    re.DOTALL,
)
# deltalake's errors are of several classes; their lines are indented, numbered and coloured.
_OF_DELTALAKE = re.compile(r"Generic S3 error.*?Error performing [A-Z]+ (?P<url>https?://\S+) in ", re.DOTALL)
_PERMANENT = frozenset({"ACCESS_DENIED", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH"})


def s3_error_of(error: BaseException, s3: S3Options | None = None) -> S3Error | None:
    """Return the error to show for a failed request of Arrow or deltalake, or None for other errors.

    Args:
        error: the error that one of them raised, or one that it caused.
        s3: the object store; by default that of the environment.
    """
    seen: BaseException | None = error
    while seen is not None:
        found = _ERROR.search(str(seen)) if isinstance(seen, OSError) else None
        if found is not None:
            return _explain_by_new_request(
                f"s3://{found['bucket']}/{found['key'] or ''}".rstrip("/"), f"the answer {found['code']}", s3
            )
        if (found := _OF_DELTALAKE.search(str(seen))) is not None:
            return _explain_by_new_request(
                _s3_uri_of_url(found["url"], s3), "an error of the server or of the network", s3
            )
        seen = seen.__cause__ or seen.__context__
    return None


def _s3_uri_of_url(url: str, s3: S3Options | None) -> str:
    """Return the S3 URI that a request's URL addresses.

    With a custom endpoint, the URL's path begins with the bucket.
    """
    from commitlake.connectors.storage.s3_clients import s3_options  # noqa: PLC0415 (boto3 takes long to import)

    parts = urlsplit(url)
    if (s3 or s3_options()).endpoint:
        return f"s3:/{unquote(parts.path)}".rstrip("/")
    return f"s3://{(parts.hostname or '').partition('.')[0]}{unquote(parts.path)}".rstrip("/")


def _explain_by_new_request(uri: str, original_answer: str, s3: S3Options | None) -> S3Error:
    """Return the error of a new request, because Arrow's error does not tell wrong credentials from denied access.

    Args:
        uri: the object of the request, or its folder.
        original_answer: the answer to that request, for a server that now gives another one.
        s3: see `s3_error_of`.
    """
    from commitlake.connectors.storage.s3_storage import S3Storage  # noqa: PLC0415 (likewise)

    try:
        S3Storage(uri, s3).check_access()
    except S3Error as error:
        return error
    is_permanent = original_answer.rpartition(" ")[2] in _PERMANENT
    kind = S3Error if is_permanent else S3UnavailableError
    return kind(f"{uri} cannot be read: found {original_answer}", "Run it again later, or see the server's log")
