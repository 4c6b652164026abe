"""Signatures of requests, as in RocketMQ's ACL 1.0.

    content   = values of all ext fields except the signature, ordered by key, then the body
    Signature = base64(HMAC-SHA1(secret key, content))

Code, opaque and flag are not signed, and a request contains no time, so whoever reads a request can send it again.
Source: AclUtils, AclSigner, AclClientRPCHook (4.9.7), AclClientRPCHook of the client (5.5.0).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from commitlake.schemas.remoting.errors import NotPermittedError

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 (the name of a field)
# Clients before 4.9.4 and brokers of 4.9 do not sign it, because no header class declares it; newer clients do.
_SOMETIMES_SIGNED = "_UNIQUE_KEY_QUERY"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret with which requests are signed; the secret is never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def compute_signature(ext_fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Return the signature of a request.

    Args:
        ext_fields: all ext fields including the access key; a signature among them is ignored.
        body: body of the request.
        secret_key: secret that only its owner and the server know.
    """
    values = "".join(ext_fields[key] for key in sorted(ext_fields) if key != SIGNATURE)
    digest = hmac.new(secret_key.encode(), values.encode("utf-8", "replace"), hashlib.sha1)
    digest.update(body)
    return base64.b64encode(digest.digest()).decode()


def sign_fields(ext_fields: Mapping[str, str], body: bytes | memoryview, credentials: Credentials) -> dict[str, str]:
    """Return the ext fields with access key, token and signature added."""
    complete = dict(ext_fields)
    complete[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        complete[SECURITY_TOKEN] = credentials.security_token
    complete[SIGNATURE] = compute_signature(complete, body, credentials.secret_key)
    return complete


def check_signature(ext_fields: Mapping[str, str], body: bytes | memoryview, secret_keys: Mapping[str, str]) -> str:
    """Check the signature of a request, and return its access key.

    Args:
        ext_fields: ext fields of the request.
        body: body of the request.
        secret_keys: secret keys by access key.

    Raises:
        NotPermittedError: if the signature is missing or wrong, or the access key is unknown.
    """
    access_key, given = ext_fields.get(ACCESS_KEY), ext_fields.get(SIGNATURE)
    if access_key is None or given is None:
        raise NotPermittedError(
            f"the request is not signed: expected the fields {ACCESS_KEY} and {SIGNATURE}; set the client's access key "
            "and secret key"
        )
    secret_key = secret_keys.get(access_key)
    if secret_key is None:
        raise NotPermittedError(
            f"expected an access key that this server knows, found {access_key[:80]!r}: check the client's access key"
        )
    wanted = [compute_signature(ext_fields, body, secret_key)]
    if _SOMETIMES_SIGNED in ext_fields:
        others = {key: value for key, value in ext_fields.items() if key != _SOMETIMES_SIGNED}
        wanted.append(compute_signature(others, body, secret_key))
    if not any(hmac.compare_digest(given.encode("utf-8", "replace"), each.encode()) for each in wanted):
        raise NotPermittedError(
            f"the request's signature was not made with the secret key of {access_key!r}: check the client's secret key"
        )
    return access_key
