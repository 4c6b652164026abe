"""Translation of boto3's errors into messages for users."""

from __future__ import annotations

from botocore import exceptions

from commitlake.connectors.storage.errors import LATER, S3Error, S3UnavailableError

_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (AWS_PROFILE), to a user of this server"
_NETWORK = "Is the endpoint right (--s3-endpoint, AWS_ENDPOINT_URL_S3), and does the server run?"
_REGION = "Name the region of the bucket (--s3-region, AWS_REGION)"
# For an unknown key, versitygw answers 404 and other servers 403.
_WRONG_CREDENTIALS = {
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "InvalidToken", "ExpiredToken",
    "TokenRefreshRequired", "InvalidClientTokenId",
}  # fmt: skip
_BUSY = {"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "RequestLimitExceeded"}
ERRORS = (exceptions.ClientError, exceptions.BotoCoreError)
# A missing server may be restarting, but a wrong certificate, like a wrong password, is permanent.
_NETWORK_ERRORS = (exceptions.HTTPClientError, exceptions.IncompleteReadError, exceptions.ConnectionError)
MISSING_OBJECT = frozenset({"NoSuchKey", "404", "NotFound"})


NO_LISTING = "an answer that is no list of objects, as from a proxy or another kind of server", _NETWORK
"""What was found, and what to do, if a server's answer to a listing has no names."""
# The first class that matches counts, so subclasses come first; {kind} is the class of the error.
_BY_CLASS: tuple[tuple[type[Exception], str, str], ...] = (
    (exceptions.NoCredentialsError, "no credentials", _CREDENTIALS),
    (exceptions.PartialCredentialsError, "half of the credentials", _CREDENTIALS),
    (exceptions.CredentialRetrievalError, "credentials that could not be had", _CREDENTIALS),
    (exceptions.TokenRetrievalError, "credentials that could not be had", _CREDENTIALS),
    (exceptions.ProfileNotFound, "no such profile", "Correct AWS_PROFILE"),
    (exceptions.SSLError, "a certificate that is not trusted", "Name the file of its authority in AWS_CA_BUNDLE"),
    (exceptions.EndpointConnectionError, "no server at the endpoint", _NETWORK),
    (exceptions.ConnectTimeoutError, "no server at the endpoint", _NETWORK),
    (exceptions.HTTPClientError, "a connection that broke off ({kind}), also when tried again", LATER),
    (exceptions.IncompleteReadError, "a connection that broke off ({kind}), also when tried again", LATER),
    (exceptions.ConnectionError, "a connection that broke off ({kind}), also when tried again", LATER),
    (exceptions.BotoCoreError, "{kind}", _NETWORK),
)


def s3_error(error: Exception, bucket: str, message_start: str) -> S3Error:
    """Return the error to raise for a failed request, without any text that the server could have chosen.

    Args:
        error: the error that boto3 raised; another one is raised unchanged.
        bucket: the bucket of the request.
        message_start: beginning of the message: what was attempted.
    """
    if isinstance(error, exceptions.ClientError):
        return _error_of_answer(error, bucket, message_start)
    for kind, found, advice in _BY_CLASS:
        if isinstance(error, kind):
            is_temporary = kind is not exceptions.SSLError and issubclass(kind, _NETWORK_ERRORS)
            raised = S3UnavailableError if is_temporary else S3Error
            return raised(found.format(kind=type(error).__name__), advice, message_start)
    raise error


def _error_of_answer(error: exceptions.ClientError, bucket: str, message_start: str) -> S3Error:
    code = error_code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _WRONG_CREDENTIALS:
        found, advice = f"credentials that the server refuses ({code})", _CREDENTIALS
    elif code == "NoSuchBucket":
        found, advice = f"no bucket {bucket!r}", "Create the bucket, or correct its name or the endpoint"
    elif code in {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}:
        found, advice = f"a bucket of another region ({code})", _REGION
    elif code in {"AccessDenied", "AllAccessDisabled"} or status == 403:
        found, advice = f"access denied ({code})", f"Allow this user to list, read and write in the bucket {bucket!r}"
    elif code in _BUSY or (status or 0) >= 500:
        return S3UnavailableError(
            f"a server that is too busy or not well ({code}), also when asked again", LATER, message_start
        )
    else:
        found, advice = f"the answer {code}", "See the server's log for its reason"
    return S3Error(found, advice, message_start)


def error_code(error: exceptions.ClientError) -> str:
    """Return the error code in a server's answer, reduced to letters and digits."""
    code = str(error.response.get("Error", {}).get("Code", "unknown"))[:64]
    return code if code.isalnum() else "unknown"
