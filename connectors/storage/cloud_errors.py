"""Translation of obstore's errors into messages for users.

obstore's messages repeat the URL of a request, which may contain a signature. So only the status and the code of the
answer are taken from them.
"""

from __future__ import annotations

import re

from obstore import exceptions

from commitlake.connectors.storage.cloud_uris import CloudUri
from commitlake.connectors.storage.errors import CloudError, CloudUnavailableError

_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_LATER = "Run it again later: nothing is lost, and nothing is done twice"
_CREDENTIALS = (
    "Set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and "
    "AZURE_CLIENT_SECRET, or give the machine's managed identity a role"
)
_CONTAINER = "Create the container, or correct its name, the account or AZURE_STORAGE_ENDPOINT"
_NETWORK = "Is the account right, or AZURE_STORAGE_ENDPOINT, and does the server run? If so, run it again later"
_NO_CREDENTIALS = re.compile(r"token request|Access Key|[Cc]redential|SAS|authoriz")
_BUSY = frozenset({"408", "429", "500", "502", "503", "504"})
_DENIED = frozenset({"401", "403"})
_DENIED_ERRORS = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
ERRORS = (exceptions.BaseError, OSError)  # a writer's errors are OSErrors, whatever they are


def cloud_error(error: Exception, uri: CloudUri, what: str) -> CloudError:
    """Return the error to raise for a failed request.

    Args:
        error: the error that obstore raised.
        uri: a place in the container of the request.
        what: beginning of the message: what was attempted.
    """
    text = str(error)
    status, code = _STATUS.search(text), answer_code(error)
    number = status[1] if status else ""
    if _NO_CREDENTIALS.search(text.partition("Error performing")[0]) or "token request" in text:
        found, advice = "no credentials that can be used", _CREDENTIALS
        if number in _BUSY or (not number and "HTTP error" in text):
            # The server of tokens may be back soon; on a machine without an identity, it never is.
            return CloudUnavailableError(f"{found}, because their server cannot be reached", advice, what)
    elif (isinstance(error, FileNotFoundError) or number == "404") and code in {"ContainerNotFound", None}:
        found, advice = f"no container {uri.container!r} in the account {uri.account!r}", _CONTAINER
    elif isinstance(error, _DENIED_ERRORS) or number in _DENIED:
        found, advice = f"access denied ({code or number})", _CREDENTIALS
    elif number in _BUSY:
        found, advice = f"a server that is busy or not well ({code or number}), also when asked again", _LATER
    elif number:
        found, advice = f"the answer {code or number}", "See the server's log for its reason"
    elif "HTTP error" in text:
        found, advice = "no server at the endpoint, or a connection that broke off, also when tried again", _NETWORK
    else:
        found, advice = f"wrong settings ({type(error).__name__})", _CREDENTIALS
    kind = CloudUnavailableError if advice in {_LATER, _NETWORK} else CloudError
    return kind(found, advice, what)


def answer_code(error: Exception) -> str | None:
    """Return the error code in a server's answer, which has letters and digits only."""
    found = _CODE.search(str(error))
    return found[1] if found else None
