"""Translation of boto3's errors into messages for users."""

from __future__ import annotations

from dataclasses import dataclass

from botocore import exceptions

from commitlake.connectors.storage.errors import S3Error, S3UnavailableError

_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (AWS_PROFILE), to a user of this server"
_NETWORK = "Is the endpoint right (--s3-endpoint, AWS_ENDPOINT_URL_S3), and does the server run?"
_LATER = "Run it again later: nothing is lost, and nothing is done twice"
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


@dataclass(frozen=True, slots=True)
class Trouble:
    """Explanation of a boto3 error. It never contains text that a server could have chosen.

    Attributes:
        found: description of what was found.
        advice: advice for the user.
        temporary: whether the same request may succeed later without changes.
    """

    found: str
    advice: str
    temporary: bool = False

    def error(self, what: str) -> S3Error:
        """Return the error to raise.

        Args:
            what: beginning of the message: what was attempted.
        """
        kind = S3UnavailableError if self.temporary else S3Error
        return kind(f"{what}found {self.found}", self.advice)


NO_LISTING = Trouble("an answer that is no list of objects, as from a proxy or another kind of server", _NETWORK)
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
    (exceptions.HTTPClientError, "a connection that broke off ({kind}), also when tried again", _LATER),
    (exceptions.IncompleteReadError, "a connection that broke off ({kind}), also when tried again", _LATER),
    (exceptions.ConnectionError, "a connection that broke off ({kind}), also when tried again", _LATER),
    (exceptions.BotoCoreError, "{kind}", _NETWORK),
)


def trouble_of(error: Exception, bucket: str) -> Trouble:
    """Explain an error of boto3.

    Args:
        error: the error that boto3 raised.
        bucket: the bucket of the request.
    """
    if isinstance(error, exceptions.ClientError):
        return _trouble_of_answer(error, bucket)
    for kind, found, advice in _BY_CLASS:
        if isinstance(error, kind):
            temporary = kind is not exceptions.SSLError and issubclass(kind, _NETWORK_ERRORS)
            return Trouble(found.format(kind=type(error).__name__), advice, temporary)
    raise error


def _trouble_of_answer(error: exceptions.ClientError, bucket: str) -> Trouble:
    code = error_code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _WRONG_CREDENTIALS:
        return Trouble(f"credentials that the server refuses ({code})", _CREDENTIALS)
    if code == "NoSuchBucket":
        return Trouble(f"no bucket {bucket!r}", "Create the bucket, or correct its name or the endpoint")
    if code in {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}:
        return Trouble(f"a bucket of another region ({code})", _REGION)
    if code in {"AccessDenied", "AllAccessDisabled"} or status == 403:
        return Trouble(f"access denied ({code})", f"Allow this user to list, read and write in the bucket {bucket!r}")
    if code in _BUSY or (status or 0) >= 500:
        return Trouble(f"a server that is too busy or not well ({code}), also when asked again", _LATER, temporary=True)
    return Trouble(f"the answer {code}", "See the server's log for its reason")


def error_code(error: exceptions.ClientError) -> str:
    """Return the error code of a server's answer, limited to letters and digits."""
    code = str(error.response.get("Error", {}).get("Code", "unknown"))[:64]
    return code if code.isalnum() else "unknown"
