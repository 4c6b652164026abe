"""An imitation of Unity Catalog's REST API for tests, because no registry has the open source server.

    with UnityCatalog() as catalog:
        monkeypatch.setenv("UNITY_CATALOG_URL", catalog.url)

It implements the requests of jobs, with the status codes and response formats of the open source server 0.6.0, which
was built from source to record them. If TEST_UNITY_CATALOG is set, tests with `catalog_url` use the real server at that
URL instead, and create schemas with random names in its catalog `unity`.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

API = "/api/2.1/unity-catalog"
CATALOG = "unity"
PAGE = 5
"""Number of tables on a page, so small that tests need several pages."""
_COLUMN_TYPES = re.compile(
    "BOOLEAN|BYTE|SHORT|INT|LONG|FLOAT|DOUBLE|DATE|TIMESTAMP|TIMESTAMP_NTZ|STRING|BINARY|DECIMAL|ARRAY|STRUCT|MAP"
)
_COLUMN_KEYS = {"name", "type_text", "type_name", "type_json", "position", "nullable", "comment", "partition_index"}
_KINDS = {"schemas": "SCHEMA", "tables": "TABLE", "volumes": "VOLUME", "catalogs": "CATALOG"}


@dataclass
class Answer:
    """An answer that is sent instead of the catalog's own.

    Attributes:
        status: HTTP status code.
        body: the body.
        headers: more headers.
        wait: called before each part of the body.
        part: size of a part.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    wait: Callable[[], None] = lambda: None
    part: int = 1 << 16


class UnityCatalog:
    """A server on the loopback address.

    Attributes:
        kinds: existing objects, by kind and full name.
        requests: method, path and headers of each request.
        answers: next answers, sent instead of the catalog's own.
        token: token that every request must have; empty for none.
        credentials: the answer to requests for credentials.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in _KINDS}
        self.kinds["catalogs"][CATALOG] = {"name": CATALOG}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.answers: list[Answer] = []
        self.token = ""
        self.credentials: dict[str, Any] = {"aws_temp_credentials": None, "expiration_time": None}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805
                self._serve(handler, {})

            def do_POST(handler) -> None:  # noqa: N805
                self._serve(handler, json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))

            def log_message(handler, *_: Any) -> None:  # noqa: N805
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.requests.append((handler.command, handler.path, dict(handler.headers)))
        answer = self.answers.pop(0) if self.answers else self._answer(handler, body)
        try:
            handler.send_response(answer.status)
            for name, value in answer.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            for start in range(0, len(answer.body), answer.part):
                answer.wait()
                handler.wfile.write(answer.body[start : start + answer.part])
        except ConnectionError:  # the client has read enough
            handler.close_connection = True

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Answer:
        url = urlsplit(handler.path)
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return refusal(401, "UNAUTHENTICATED", "No authorization found")
        match = re.fullmatch(rf"{API}/([a-z-]+)(?:/([^/]+))?", url.path)
        kind, name = (match[1], unquote(match[2] or "")) if match else ("", "")
        if kind == "temporary-path-credentials":
            return Answer(body=json.dumps({**self.credentials, "url": body["url"]}).encode())
        if kind not in _KINDS:
            return Answer(404, b"Status: 404\nDescription: Not Found")
        if handler.command == "POST":
            return self._create(kind, body)
        if name:
            found = self.kinds[kind].get(name)
            code = f"{_KINDS[kind]}_NOT_FOUND"
            return Answer(body=json.dumps(found).encode()) if found else refusal(404, code, f"not found: {name}")
        return self._list_tables({key: values[0] for key, values in parse_qs(url.query).items()})

    def _create(self, kind: str, body: dict[str, Any]) -> Answer:
        parts = [body["catalog_name"], *([body["schema_name"]] if kind != "schemas" else []), body["name"]]
        name = ".".join(parts)
        if parts[0] not in self.kinds["catalogs"]:
            return refusal(404, "CATALOG_NOT_FOUND", f"Catalog not found: {parts[0]}")
        if kind != "schemas" and ".".join(parts[:2]) not in self.kinds["schemas"]:
            return refusal(404, "SCHEMA_NOT_FOUND", f"Schema not found: {parts[1]}")
        if name in self.kinds[kind]:
            code = "RESOURCE_ALREADY_EXISTS" if kind == "volumes" else f"{_KINDS[kind]}_ALREADY_EXISTS"
            return refusal(400, code, f"already exists: {name}")
        for column in body.get("columns", ()):
            if not _COLUMN_TYPES.fullmatch(column["type_name"]) or set(column) - _COLUMN_KEYS:
                return refusal(400, "INVALID_ARGUMENT", f"not a column: {column}")
        self.kinds[kind][name] = body
        return Answer(body=json.dumps(body).encode())

    def _list_tables(self, query: dict[str, str]) -> Answer:
        schema = f"{query['catalog_name']}.{query['schema_name']}"
        if schema not in self.kinds["schemas"]:
            return refusal(404, "SCHEMA_NOT_FOUND", f"Schema not found: {schema}")
        names = sorted(name for name in self.kinds["tables"] if name.startswith(f"{schema}."))
        after = [name for name in names if name > query.get("page_token", "")]
        page = after[: min(PAGE, int(query["max_results"]))]
        token = page[-1] if len(after) > len(page) else None
        found = {"tables": [self.kinds["tables"][name] for name in page], "next_page_token": token}
        return Answer(body=json.dumps(found).encode())


def refusal(status: int, code: str, message: str) -> Answer:
    """Return the answer to a request that the catalog refuses."""
    return Answer(status, json.dumps({"error_code": code, "details": [], "message": message}).encode())


@contextmanager
def catalog_url() -> Iterator[str]:
    """Yield the address of a catalog: that in TEST_UNITY_CATALOG if it is set, otherwise that of an imitation."""
    if real := os.environ.get("TEST_UNITY_CATALOG"):
        yield real
        return
    with UnityCatalog() as imitation:
        yield imitation.url
