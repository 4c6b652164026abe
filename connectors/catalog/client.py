"""Requests to Unity Catalog's REST API, which Databricks and the open source server share.

    GET  /catalogs/{catalog}                                POST /schemas
    GET  /schemas/{catalog}.{schema}                        POST /tables, /volumes
    GET  /tables?catalog_name=…&schema_name=…  by pages     POST /temporary-path-credentials
    GET  /volumes/{catalog}.{schema}.{volume}

The server is not trusted: bodies of answers are limited in size and time, redirects are not followed, so that the token
stays with its server, and texts of the server are escaped and cut before they are shown.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from commitlake.connectors.catalog.names import CatalogError, SchemaName
from commitlake.connectors.catalog.server import CatalogServer
from commitlake.connectors.printable import escape_line
from commitlake.schemas.errors import ExitCode

API = "/api/2.1/unity-catalog"
PAGE = 50
"""Tables in a page; Databricks gives no more."""
_MAX_PAGES = 1000
_MAX_BYTES = 16 << 20  # a page with 50 tables of 100 commented columns has 2 MiB
_CHUNK = 1 << 16
_CONNECTION_SECONDS = 30  # for each read
_ANSWER_SECONDS = 120
_WAITS_SECONDS = (1.0, 3.0)
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_SHOWN = 300

Json = dict[str, Any]


class _ServerAnswerError(Exception):
    """Error for an answer in which the server reports an HTTP error status.

    Attributes:
        status: the code of HTTP.
        code: the catalog's own code, or empty.
        text: the server's explanation, escaped.
    """

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(status, code, text)
        self.status = status
        self.code = code
        self.text = text


def _no_redirect_opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirects: the answer to a redirected request is an error."""
    # Not `build_opener`, which adds handlers of redirects, files and FTP.
    opener = urllib.request.OpenerDirector()
    handlers: list[urllib.request.BaseHandler]
    handlers = [urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(), urllib.request.HTTPErrorProcessor(),
                urllib.request.HTTPDefaultErrorHandler()]  # fmt: skip
    if url.startswith("https:"):  # otherwise, a proxy would see the token, and could answer as this machine
        handlers.append(urllib.request.ProxyHandler())
    for handler in handlers:
        opener.add_handler(handler)
    return opener


class CatalogClient:
    """Client of one catalog server. Every method raises CatalogError, marked as transient if a retry may succeed."""

    def __init__(self, server: CatalogServer, sleep: Callable[[float], None] = time.sleep) -> None:
        """Prepare a client; no request is sent yet.

        Args:
            server: address and token.
            sleep: what waits between attempts.
        """
        self.server = server
        self._sleep = sleep
        self._opener = _no_redirect_opener(server.url)

    def find_object(self, object_type: str, name: str) -> Json | None:
        """Return the description of a catalog, a schema or a volume; None if there is none.

        Args:
            object_type: `catalogs`, `schemas` or `volumes`.
            name: its full name.
        """
        try:
            return self._send_request("GET", f"/{object_type}/{quote(name, safe='')}")
        except _ServerAnswerError as error:
            # Another server's page of a 404 has no error code; then the address is wrong.
            if error.status == 404 and error.code:
                return None
            raise self._to_catalog_error(error, name) from None

    def list_tables(self, schema_name: SchemaName) -> Iterator[Json]:
        """Yield the descriptions of all tables of a schema; yield nothing if the schema does not exist."""
        query = {"catalog_name": schema_name.catalog, "schema_name": schema_name.schema, "max_results": str(PAGE)}
        for _ in range(_MAX_PAGES):
            try:
                page = self._send_request("GET", f"/tables?{urlencode(query)}")
            except _ServerAnswerError as error:
                if error.status == 404 and error.code:
                    return
                raise self._to_catalog_error(error, str(schema_name)) from None
            found = page.get("tables") or []
            if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
                raise self._unreadable_error("expected a list of tables")
            yield from found
            token = page.get("next_page_token")
            if not token:
                return
            if not isinstance(token, str) or not token.isascii():
                raise self._unreadable_error("expected a text as the token of the next page")
            query["page_token"] = token
        raise CatalogError(
            f"the catalog {self.server.url} lists more than {_MAX_PAGES * PAGE} tables in the schema {schema_name}: "
            "expected the schema of one lake"
        )

    def create_object(self, object_type: str, name: str, body: Mapping[str, Any]) -> bool:
        """Create a schema, a table or a volume; return False if one with this name exists already.

        Args:
            object_type: `schemas`, `list_tables` or `volumes`.
            name: its full name, for errors.
            body: its description.
        """
        try:
            self._send_request("POST", f"/{object_type}", body)
        except _ServerAnswerError as error:
            # Another process has created it since it was looked for.
            if error.code.endswith("ALREADY_EXISTS"):
                return False
            raise self._to_catalog_error(error, name) from None
        return True

    def request_credentials(self, url: str) -> Json:
        """Request temporary credentials to read and write below a URI, and return the catalog's answer."""
        try:
            body = {"url": url, "operation": "PATH_READ_WRITE"}
            return self._send_request("POST", "/temporary-path-credentials", body)
        except _ServerAnswerError as error:
            raise self._to_catalog_error(error, f"credentials for {url}") from None

    def _send_request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Send a request, with retries; raise _ServerAnswerError for an HTTP status that a retry would not change."""
        for wait in (*_WAITS_SECONDS, None):
            try:
                return self._send_request_once(method, path, body)
            except _ServerAnswerError as error:
                if error.status not in _TRANSIENT:
                    raise
                trouble = f"answered {error.status}: {error.text}"
            except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
                reason = getattr(error, "reason", None) or error
                # A retry does not change a certificate.
                if isinstance(reason, ssl.SSLCertVerificationError):
                    raise CatalogError(
                        f"the certificate of the catalog {self.server.url} cannot be verified: "
                        f"{self._hide_token(str(reason))}"
                    ) from None
                trouble = f"cannot be reached: {self._hide_token(str(reason) or type(error).__name__)}"
            if wait is not None:
                self._sleep(wait)
        raise CatalogError(
            f"the catalog {self.server.url} {trouble}. Check its address, or try again later",
            exit_code=ExitCode.FAILED,
            is_transient=True,
        )

    def _send_request_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server.url}{API}{path}", data, method=method)  # noqa: S310 (http(s))
        request.add_header("Accept", "application/json")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.server.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.server.token}")
        try:
            with self._opener.open(request, timeout=_CONNECTION_SECONDS) as answer:
                return self._parse_object(self._read_answer(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise self._error_of_answer(error) from None

    def _error_of_answer(self, http_error: urllib.error.HTTPError) -> _ServerAnswerError:
        if 300 <= http_error.code < 400:
            return _ServerAnswerError(
                http_error.code, "", "a redirect, which is not followed, because it could take the token"
            )
        try:
            answer = self._parse_object(self._read_answer(http_error))
        except CatalogError:  # a page of a proxy, or of another kind of server
            return _ServerAnswerError(http_error.code, "", self._hide_token(str(http_error.reason)))
        return _ServerAnswerError(
            http_error.code, str(answer.get("error_code") or ""), self._hide_token(str(answer.get("message") or ""))
        )

    def _read_answer(self, answer: Any) -> bytes:
        """Return the body of an answer; raise an error if it is too large or takes too long."""
        read = bytearray()
        end = time.monotonic() + _ANSWER_SECONDS
        # `read` would wait for all bytes, and no limit in time could be checked.
        while chunk := answer.read1(_CHUNK):
            read += chunk
            if len(read) > _MAX_BYTES:
                raise CatalogError(
                    f"the catalog {self.server.url} answered with more than {_MAX_BYTES} bytes: check the address"
                )
            if time.monotonic() > end:
                raise TimeoutError(f"expected a complete answer within {_ANSWER_SECONDS} s, found an unfinished one")
        if missing := getattr(answer, "length", None):  # `read1` does not notice
            raise http.client.IncompleteRead(bytes(read), missing)
        return bytes(read)

    def _parse_object(self, data: bytes) -> Json:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            raise self._unreadable_error("expected JSON") from None
        if not isinstance(answer, dict):
            raise self._unreadable_error("expected a JSON object")
        return answer

    def _unreadable_error(self, problem: str) -> CatalogError:
        return CatalogError(f"{self.server.url} does not answer like a Unity Catalog: {problem}. Check the address")

    def _to_catalog_error(self, answer_error: _ServerAnswerError, name: str) -> CatalogError:
        advice = {
            401: "Check the token",
            403: "Ask for the permission, or use another token",
            404: "Check the address: it does not answer like a Unity Catalog",
        }.get(answer_error.status, "Check the address and the token" if answer_error.status < 400 else "")
        said = f"{answer_error.status} {self._hide_token(answer_error.code)}".rstrip() + (
            f": {answer_error.text}" if answer_error.text else ""
        )
        return CatalogError(f"the catalog {self.server.url}, {name}: {said.rstrip('.')}" + (advice and f". {advice}"))

    def _hide_token(self, text: str) -> str:
        """Return a server's message as one short line, with the token removed if the server repeats it."""
        token = self.server.token
        text = text.replace(token, "***") if token else text
        return escape_line(" ".join(text.split()))[:_SHOWN]
