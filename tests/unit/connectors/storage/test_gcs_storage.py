"""A target in Google Cloud Storage whose server loses answers and goes away at chosen moments, as no emulator does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from commitlake.connectors.shipping.ship_target import ShipError, ShipUnavailableError
from commitlake.connectors.shipping.storage_target import StorageTarget
from commitlake.connectors.storage.gcs_clients import SHORT_TIMEOUTS, TIMEOUTS, forget_client
from commitlake.connectors.storage.gcs_storage import GcsStorage
from commitlake.schemas.shipped_manifest import LOG_MANIFEST

COPY = "gs://logs/copy"


class Bucket(ThreadingHTTPServer):
    """One bucket: uploads in one request with conditions, and reads and lists of objects.

    Attributes:
        objects: content and resource of each object.
        loses_answers: whether uploads succeed without an answer, after which the server is away.
        is_away: whether it answers 503 to every request.
        away_until: time until which it answers 503 to requests that read.
        seconds_after_conflict: how long `away_until` is after an upload that was refused.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, dict[str, Any]]] = {}
        self.loses_answers = self.is_away = False
        self.away_until = self.seconds_after_conflict = 0.0

    def write(self, resource: dict[str, Any], data: bytes) -> None:
        """Write an object as a new generation."""
        generation = 1 + max([0, *(int(found["generation"]) for _, found in self.objects.values())])
        resource |= {"size": str(len(data)), "generation": str(generation)}
        self.objects[resource["name"]] = data, resource


class _Handler(BaseHTTPRequestHandler):
    server: Bucket

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        boundary = self.headers["Content-Type"].partition("boundary=")[2].strip('"').encode()
        first, second = (
            part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in body.split(b"--" + boundary)[1:3]
        )
        resource, query = json.loads(first), parse_qs(urlsplit(self.path).query)
        if self.server.is_away:
            return self._answer(503)
        _, found = self.server.objects.get(resource["name"], (b"", {"generation": "0"}))
        if query.get("ifGenerationMatch", [found["generation"]]) != [found["generation"]]:
            self.server.away_until = time.monotonic() + self.server.seconds_after_conflict
            return self._answer(412)
        self.server.write(resource, second)
        if self.server.loses_answers:
            self.server.loses_answers, self.close_connection = False, True
            self.server.away_until = time.monotonic() + self.server.seconds_after_conflict
            self.server.is_away = not self.server.seconds_after_conflict
            return None
        return self._answer(200, json.dumps(resource).encode())

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if self.server.is_away or time.monotonic() < self.server.away_until:
            return self._answer(503)
        if url.path.endswith("/o"):
            names = sorted(name for name in self.server.objects if name.startswith(query["prefix"][0]))
            start = int(query.get("pageToken", ["0"])[0])
            end = start + int(query["maxResults"][0])
            items = [self.server.objects[name][1] for name in names[start:end]]
            more = {"nextPageToken": str(end)} if end < len(names) else {}
            return self._answer(200, json.dumps({"items": items, **more}).encode())
        found = self.server.objects.get(unquote(url.path.rpartition("/o/")[2]))
        if found is None:
            return self._answer(404)
        return self._answer(200, found[0] if query.get("alt") == ["media"] else json.dumps(found[1]).encode())

    def _answer(self, status: int, body: bytes = b"{}") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """The server, whose clients give up early."""
    for limits, seconds in ((TIMEOUTS, 2.0), (SHORT_TIMEOUTS, 0.2)):
        monkeypatch.setitem(limits, "retry", limits["retry"].with_delay(0.05, 0.1).with_timeout(seconds))
    monkeypatch.delenv("COMMITLAKE_GCS_ENDPOINT", raising=False)
    with Bucket() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        forget_client()
        yield server
        forget_client()
        server.shutdown()


@pytest.fixture
def target(bucket: Bucket) -> StorageTarget:
    """A target that has found no manifest."""
    found = StorageTarget(GcsStorage(COPY))
    assert found.read_manifest(LOG_MANIFEST) is None
    return found


def manifest_in(bucket: Bucket) -> bytes:
    """Return the manifest."""
    return bucket.objects[f"copy/{LOG_MANIFEST}"][0]


def test_names_follow_the_object_of_their_folder(bucket: Bucket, target: StorageTarget) -> None:
    for name in ("copy/commitlog/", "copy/commitlog-2/x"):  # the first one as some tools create folders
        bucket.write({"name": name}, b"")
    assert target.list_names("commitlog", 1) == []
    for name in ("0", "1"):
        bucket.write({"name": f"copy/commitlog/{name}"}, b"x")
    assert target.list_names("commitlog", 1) == ["0"]
    assert target.list_names("commitlog", 5) == ["0", "1"]
    assert target.list_names("commitlog-2", 1) == ["x"]


def test_names_follow_the_objects_of_folders_within(bucket: Bucket, target: StorageTarget) -> None:
    for name in ("", "TopicTest/", "TopicTest/0/", "TopicTest/1/", "TopicTest/1/00000000000000000000"):
        bucket.write({"name": f"copy/consumequeue/{name}"}, b"")
    assert target.list_names("consumequeue", 1) == ["TopicTest/1/00000000000000000000"]


def test_manifest_whose_answer_was_lost_before_a_long_outage_is_replaced(bucket: Bucket, target: StorageTarget) -> None:
    for earlier in (b"1", b"2"):
        bucket.loses_answers = True
        with pytest.raises(ShipUnavailableError):
            target.replace_manifest(LOG_MANIFEST, earlier)
        assert manifest_in(bucket) == earlier
        bucket.is_away = False
    target.replace_manifest(LOG_MANIFEST, b"3")
    assert manifest_in(bucket) == b"3"


def test_manifest_of_another_agent_is_not_replaced_after_an_outage(bucket: Bucket, target: StorageTarget) -> None:
    bucket.loses_answers = True
    with pytest.raises(ShipUnavailableError):
        target.replace_manifest(LOG_MANIFEST, b"1")
    bucket.is_away = False
    other = StorageTarget(GcsStorage(COPY))
    assert other.read_manifest(LOG_MANIFEST) == b"1"
    other.replace_manifest(LOG_MANIFEST, b"other")
    for _ in range(2):
        with pytest.raises(ShipError, match="another agent"):
            target.replace_manifest(LOG_MANIFEST, b"2")
    assert manifest_in(bucket) == b"other"


def test_manifest_is_looked_at_again_until_the_server_can_answer(bucket: Bucket, target: StorageTarget) -> None:
    bucket.loses_answers, bucket.seconds_after_conflict = True, 0.8  # longer than the short retries
    target.replace_manifest(LOG_MANIFEST, b"1")
    assert manifest_in(bucket) == b"1"
    target.replace_manifest(LOG_MANIFEST, b"2")
    assert manifest_in(bucket) == b"2"
