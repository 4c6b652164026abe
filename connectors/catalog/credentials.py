"""Temporary credentials for a prefix in S3, in the form that AWS's tools read from a command.

AWS's SDKs (boto3 here, the Java SDK in Spark) run the `credential_process` command of a profile, and run it again
before the credentials expire. A job therefore never has to renew them, even if it runs for days.

    [default]
    credential_process = commitlake catalog --lake main.logs --credentials
"""

from __future__ import annotations

import datetime
from typing import Any

from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.names import CatalogError

_MAX_MS = 1 << 43  # the year 2248


def credential_process_output(client: CatalogClient, root: str) -> dict[str, Any]:
    """Return credentials to read and write below a prefix, as the JSON object that `credential_process` prints.

    Args:
        root: `s3://bucket/prefix`.

    Raises:
        CatalogError: if the catalog has no credentials for the place.
    """
    answer = client.request_credentials(root)
    given = answer.get("aws_temp_credentials")
    names = {"AccessKeyId": "access_key_id", "SecretAccessKey": "secret_access_key", "SessionToken": "session_token"}
    found = {name: given.get(key) for name, key in names.items()} if isinstance(given, dict) else {}
    if found and not found["SessionToken"]:  # keys without an end, of a server other than Amazon's
        del found["SessionToken"]
    if not found or not all(isinstance(value, str) and value.isascii() and value for value in found.values()):
        raise CatalogError(
            f"the catalog {client.server.url} gives no AWS credentials for {root}: use credentials from the "
            "environment, from a profile or from a role"
        )
    expires = answer.get("expiration_time")
    if isinstance(expires, int) and 0 < expires < _MAX_MS:
        found["Expiration"] = datetime.datetime.fromtimestamp(expires / 1000, datetime.UTC).isoformat()
    return {"Version": 1, **found}
