"""Translation of hdfs-native's errors into messages for users.

A NameNode's exception comes as text, with the class, the message and Java's stack. Only the first line of the message
is repeated.
"""

from __future__ import annotations

import re

from commitlake.connectors.printable import printable_line
from commitlake.connectors.storage.errors import CloudError, CloudNameError, CloudUnavailableError
from commitlake.connectors.storage.hdfs_uris import HdfsUri

_REMOTE = re.compile(r'RPCError\("(?P<name>[\w.$]{1,200})", "(?P<message>(?:[^"\\]|\\(?!n).)*)', re.DOTALL)
_MAX_SHOWN = 300
_LATER = "Run it again later: nothing is lost, and nothing is done twice"
_NETWORK = "Are the host and the port of the URI right, and do the servers run? If so, run it again later"
_NAMESERVICE = "Write host and port (hdfs://host:8020/folder), or set HADOOP_CONF_DIR to the cluster's settings"
_CREDENTIALS = (
    "Set HADOOP_CONF_DIR to the cluster's settings, and get a ticket with kinit, or set HADOOP_TOKEN_FILE_LOCATION"
)
_DENIED = "Give this user permission; without Kerberos, HADOOP_USER_NAME is the user"
_LOG = "See the NameNode's log for its reason"
_SPACE = "Free some space, or raise the quota"
_DENIED_ERRORS = frozenset({"AccessControlException", "AuthorizationException"})
_CLASS_END = re.compile(r"[.$]")  # the end of a package, or of an enclosing class
_QUOTA_ERRORS = frozenset(
    {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException"}
)
_BUSY_ERRORS = frozenset(
    {
        "LeaseExpiredException",
        "NoNamenodesAvailableException",
        "NotReplicatedYetException",
        "ObserverRetryOnActiveException",
        "RecoveryInProgressException",
        "RetriableException",
        "SafeModeException",
        "ServerTooBusyException",
        "StandbyException",
    }
)
_NO_DATA_NODE = re.compile(r"could only be written to|could not find enough|no DataNode|Connection re|CallQueue")
_CREDENTIAL_ERRORS = ("SASLError(", "GSSAPIError(", "NoSASLMechanism")
_SERVER_ERRORS = (
    "BlocksNotFound(",
    "ChecksumError",
    "DataTransferError(",
    "ErasureCodingError(",
    "InvalidRPCResponse(",
    "OperationFailed(",
)
_SETTING_ERRORS = ("XmlParseError(", "UrlParseError(", "InvalidArgument(")
FILE_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors about a path, which are not converted."""


def hdfs_error(error: BaseException, uri: HdfsUri, what: str) -> Exception:
    """Return the error to raise for a failed request.

    Args:
        error: the error that the client raised.
        uri: a place in the cluster of the request.
        what: beginning of the message: what was attempted.
    """
    text = str(error)
    shown = _first_line(text)
    remote = _REMOTE.search(text)
    if isinstance(error, FILE_ERRORS):
        return type(error)(f"{uri}: {shown}")
    if remote is not None:
        return _remote_error(_CLASS_END.split(remote["name"])[-1], remote["message"], what)
    kind = CloudError
    if isinstance(error, TimeoutError):
        kind, found, advice = CloudUnavailableError, "a server that does not answer", _LATER
    elif isinstance(error, NotImplementedError):
        found = f"a feature that the client does not have ({shown})"
        advice = "A folder in an encryption zone cannot be used: use another one"
    elif isinstance(error, OSError):
        kind, advice = CloudUnavailableError, _NETWORK
        found = f"no connection to the NameNode {uri.authority!r} or a DataNode, also when tried again ({shown})"
    elif text.startswith(_CREDENTIAL_ERRORS):
        found, advice = f"no credentials that can be used ({shown})", _CREDENTIALS
    elif "No NameNode hosts found" in text:
        found, advice = f"no nameservice {uri.authority!r} in the settings of Hadoop", _NAMESERVICE
    elif text.startswith(_SETTING_ERRORS):
        found, advice = f"wrong settings of Hadoop ({shown})", "Correct HADOOP_CONF_DIR"
    elif text.startswith(_SERVER_ERRORS):
        kind, found, advice = CloudUnavailableError, f"DataNodes that are not well ({shown})", _LATER
    else:
        found, advice = f"{type(error).__name__}: {shown}", _LOG
    return kind(found, advice, what)


def _remote_error(name: str, message: str, what: str) -> Exception:
    shown = _first_line(message.replace('\\"', '"'))
    if "(is not a directory)" in message:
        return NotADirectoryError(f"{what}found a file in the place of a folder: {shown}")
    kind = CloudError
    if name == "InvalidToken":
        found, advice = f"no credentials that can be used ({name}: {shown})", _CREDENTIALS
    elif name in _DENIED_ERRORS:
        found, advice = f"access denied ({shown})", _DENIED
    elif name == "PathComponentTooLongException":
        kind, found, advice = CloudNameError, f"a name that is too long ({shown})", "Use shorter names"
    elif name in _QUOTA_ERRORS:
        kind, found, advice = CloudUnavailableError, f"a quota that is used up ({shown})", _SPACE
    elif name in _BUSY_ERRORS or _NO_DATA_NODE.search(message):
        kind, advice = CloudUnavailableError, _LATER
        found = f"a cluster that is busy or not well ({name}: {shown})"
    else:
        found, advice = f"{name}: {shown}", _LOG
    return kind(found, advice, what)


def _first_line(text: str) -> str:
    lines = text.replace("\\n", "\n").splitlines() or [""]
    return printable_line(lines[0])[:_MAX_SHOWN]
