"""A prefix in a container of Azure's object store, through the package obstore.

obstore has no request that joins objects on the server, so a file that consists of others is written from bytes that
are read back; it appears once its last byte has been written. Conditional puts replace a version: if two processes send
one at the same time, the server performs only one of them.

obstore is the client that deltalake uses, with the same names of settings. Credentials come from the environment
(`AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, `AZURE_CLIENT_ID` with a secret or a federated token, …), else
from the managed identity of the machine. obstore retries requests. Its messages repeat the URL of a request, which may
contain a signature, so only the status and the code of an answer are taken from them.
"""

from __future__ import annotations

import datetime
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import AzureStore

from commitlake.connectors.storage.cloud_storage import BUSY, CloudStorage, explain_status, find_endpoint
from commitlake.connectors.storage.errors import LATER, CloudError, CloudUnavailableError
from commitlake.connectors.storage.storage import FileContent, FolderEntry, FoundFile, ReplacedError
from commitlake.connectors.storage.uris import CloudUri
from commitlake.schemas.shipped_manifest import Part

if TYPE_CHECKING:
    from obstore.store import AzureConfig, BackoffConfig

_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_CREDENTIALS = (
    "Set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and "
    "AZURE_CLIENT_SECRET, or give the machine's managed identity a role"
)
_CONTAINER = "Create the container, or correct its name, the account or AZURE_STORAGE_ENDPOINT"
_NETWORK = "Is the account right, or AZURE_STORAGE_ENDPOINT, and does the server run? If so, run it again later"
_NO_CREDENTIALS = re.compile(r"token request|Access Key|[Cc]redential|SAS|authoriz")
_DENIED_ERRORS = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
ERRORS = (exceptions.BaseError, OSError)  # a writer's errors are OSErrors, whatever they are


def azure_error(error: Exception, uri: CloudUri, message_start: str) -> CloudError:
    """Return the error to raise for a failed request to Azure, given the one that obstore raised.

    Args:
        error: the error that obstore raised.
        uri: a place in the container of the request.
        message_start: beginning of the message: what was attempted.
    """
    text = str(error)
    status, code = _STATUS.search(text), error_code(error)
    number = int(status[1]) if status else None
    # What follows "Error performing" repeats a URL and an answer, which may contain any of these words; only a failed
    # request for a token is named there.
    if _NO_CREDENTIALS.search(text.partition("Error performing")[0]) or "token request" in text:
        found, advice = "no credentials that can be used", _CREDENTIALS
        if number in BUSY if number else "HTTP error" in text:
            # The server of tokens may be back soon; on a machine without an identity, it never is.
            return CloudUnavailableError(f"{found}, because their server cannot be reached", advice, message_start)
    elif (isinstance(error, FileNotFoundError) or number == 404) and code in {"ContainerNotFound", None}:
        found, advice = f"no container {uri.container!r} in the account {uri.account!r}", _CONTAINER
    elif number or isinstance(error, _DENIED_ERRORS):
        found, advice = explain_status(number or 403, code or str(number or ""), _CREDENTIALS)
    elif "HTTP error" in text:
        found, advice = "no server at the endpoint, or a connection that broke off, also when tried again", _NETWORK
    else:
        found, advice = f"wrong settings ({type(error).__name__})", _CREDENTIALS
    kind = CloudUnavailableError if advice in {LATER, _NETWORK} else CloudError
    return kind(found, advice, message_start)


def error_code(error: Exception) -> str | None:
    """Return the error code in a server's answer, reduced to letters and digits."""
    found = _CODE.search(str(error))
    return found[1] if found else None


MAX_ATTEMPTS = 8
FEW_ATTEMPTS = 2  # while a user waits, and a wrong endpoint is more likely than an overloaded server
_BACKOFF: BackoffConfig = {
    "init_backoff": datetime.timedelta(seconds=1),
    "max_backoff": datetime.timedelta(seconds=20),
}
_RETRY_TIMEOUT = datetime.timedelta(minutes=3)
_REQUEST_TIMEOUT = datetime.timedelta(minutes=2)
_ENDPOINT_VARIABLES = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_PUBLIC_CLOUD = "core.windows.net"


def azure_client(uri: CloudUri, attempts: int = MAX_ATTEMPTS) -> Any:
    """Return this process's client for the container of a URI.

    Args:
        uri: any place in the container.
        attempts: maximum number of attempts for a request.

    Raises:
        CloudError: if the settings in the environment are wrong.
    """
    # Without the prefix: all places in a container share one client and its connections.
    return _cached_client(CloudUri(uri.scheme, uri.authority, ""), attempts)


@lru_cache(maxsize=64)
def _cached_client(uri: CloudUri, attempts: int) -> Any:
    endpoint = find_endpoint(_ENDPOINT_VARIABLES, _ENDPOINT_VARIABLES[0])
    # obstore itself knows the domain of the public cloud only.
    if endpoint is None and uri.suffix != _PUBLIC_CLOUD:
        endpoint = f"https://{uri.account}.blob.{uri.suffix}"
    config: AzureConfig = {"account_name": uri.account}
    if endpoint is not None:
        config["endpoint"] = endpoint
    try:
        return AzureStore(
            uri.container,
            config=config,
            client_options={"allow_http": (endpoint or "").lower().startswith("http://"), "timeout": _REQUEST_TIMEOUT},
            retry_config={"max_retries": attempts - 1, "retry_timeout": _RETRY_TIMEOUT, "backoff": _BACKOFF},
        )
    except exceptions.BaseError as error:
        raise azure_error(error, uri, f"{uri}: ") from None


def forget_clients() -> None:
    """Discard this process's clients, so that the next requests read the environment again."""
    _cached_client.cache_clear()


os.register_at_fork(after_in_child=forget_clients)


_BLOCK_BYTES = 8 << 20
_MARK = "commitlake_upload"


class AzureStorage(CloudStorage):
    """Files below a prefix of an Azure container."""

    known_errors = ERRORS

    def has_objects(self, folder: str, *, is_user_waiting: bool = False) -> bool:
        """Return whether a folder contains any object; see CloudStorage."""
        client = azure_client(self.root, FEW_ATTEMPTS if is_user_waiting else MAX_ATTEMPTS)
        key = self.key(folder)
        with self.convert_errors(folder, "listed"):
            return any(page for page in obstore.list(client, f"{key}/" if key else None, chunk_size=1))

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """Yield the names of all files in a folder and its subfolders."""
        yield from islice(self._list_names(folder, limit), limit)

    def _list_names(self, folder: str, limit: int | None) -> Iterator[str]:
        root, key = self.root.key(""), self.key(folder)
        with self.convert_errors(folder, "listed"):
            for page in obstore.list(self._client, key or None, chunk_size=limit or 1000):
                yield from (each["path"].removeprefix(f"{root}/") for each in page)

    def entries(self, folder: str) -> list[FolderEntry]:
        """Return the files and folders in a folder; see ReadableStorage."""
        key = self.key(folder)
        with self.convert_errors(folder, "listed"):
            found: Any = obstore.list_with_delimiter(self._client, key or None)
        folders = set(found["common_prefixes"])
        if not folders and not found["objects"]:
            raise FileNotFoundError(f"the folder {self.uri_of(folder)} does not exist")
        # With hierarchical namespaces, a folder is also an object.
        objects = {each["path"]: _to_found_file(each) for each in found["objects"] if each["path"] not in folders}
        return [
            *(FolderEntry(path.rpartition("/")[2]) for path in sorted(folders)),
            *(FolderEntry(path.rpartition("/")[2], objects[path]) for path in sorted(objects)),
        ]

    def head(self, name: str) -> FoundFile | None:
        """Return the newest version of a file, or None if it does not exist."""
        key = self.key(name)
        with self.convert_errors(name, "read"), suppress(FileNotFoundError):
            return _to_found_file(obstore.head(self._client, key))
        return None

    def get(self, name: str, max_bytes: int) -> FileContent | None:
        """Read a file, or return None if it does not exist."""
        key = self.key(name)
        with self.convert_errors(name, "read"), suppress(FileNotFoundError):
            answer = obstore.get(self._client, key)
            # The body has not been read yet, so an object that is too large costs no memory.
            if answer.meta["size"] > max_bytes:
                raise self.too_large_error(name, max_bytes)
            return FileContent(bytes(answer.bytes()), _version_of_blob(answer.meta))
        return None

    def read(self, name: str, start: int, end: int, found_version: FoundFile) -> bytes | None:
        """Return a range of one version of an object; None if that version was deleted."""
        key = self.key(name)
        options: Any = {"range": (start, end)}
        if found_version.version:
            options["if_match"] = found_version.version
        with self.convert_errors(name, "read"):
            try:
                return bytes(obstore.get(self._client, key, options=options).bytes())
            except PreconditionError:
                raise ReplacedError from None
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """Write a file; an existing one is replaced. See Storage."""
        with self.convert_errors(name, "written"):
            self._put(name, data)

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """Write a file if it still has the given version, an object's tag or a number."""
        with self.convert_errors(name, "written"):
            try:
                return _version_of_blob(self._put(name, data, mode="create" if version is None else version))
            except (AlreadyExistsError, PreconditionError):
                raise ReplacedError from None

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        key = self.key(name)
        with self.convert_errors(name, "deleted"), suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def compose(self, name: str, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> None:
        """Write a file as the concatenation of parts; after an error, no object appears. See Storage."""
        key, mark = self.key(name), secrets.token_hex(16)
        with self.convert_errors(name, "written"):
            writer = obstore.open_writer(
                self._client, key, attributes={_MARK: mark}, buffer_size=_BLOCK_BYTES, max_concurrency=1
            )
            for part in parts:
                writer.write(self._read_part(part_file_name(part), part))
            try:
                writer.close()
            except OSError:
                # The answer to an earlier attempt may be lost; a second attempt finds no parts of the upload any more.
                with suppress(FileNotFoundError):
                    if obstore.get(self._client, key, options={"head": True}).attributes.get(_MARK) == mark:
                        return
                raise

    def convert_error(self, error: Any, message_start: str) -> CloudError:
        """Return the error to raise instead of one of `known_errors`; see CloudStorage."""
        return azure_error(error, self.root, message_start)

    @property
    def _client(self) -> Any:
        return azure_client(self.root, MAX_ATTEMPTS)

    def _read_part(self, name: str, part: Part) -> bytes:
        """Read a part, and check its size and checksum."""
        try:
            data = bytes(obstore.get(self._client, self.key(name)).bytes())
        except FileNotFoundError:
            raise self.changed_part_error(name, part) from None
        self.check_part(name, part, data)
        self.pace.wait_in_steps(len(data))
        return data

    def _put(self, name: str, data: bytes, **condition: Any) -> Any:
        key = self.key(name)
        self.pace.wait_in_steps(len(data))
        return obstore.put(self._client, key, data, use_multipart=False, **condition)


def _to_found_file(metadata: Any) -> FoundFile:
    return FoundFile(int(metadata["size"]), metadata["last_modified"], metadata["e_tag"])


def _version_of_blob(metadata: Any) -> dict[str, str]:
    """Return the identifier of an object's version: its ETag or, on some servers, a version number."""
    return {name: metadata[name] for name in ("e_tag", "version") if metadata[name]}
