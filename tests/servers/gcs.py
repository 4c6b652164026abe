"""A server of Google Cloud Storage's JSON API (fake-gcs-server), and a server that issues tokens to clients.

    with GcsServer(folder) as server:
        server.create_bucket("logs")

Both listen on the loopback address. Clients get the key file of a service account from environment variables, as jobs
do: `server.environment()`. The token server checks the signature of each request. fake-gcs-server ignores tokens. It
keeps objects in memory; writes with a condition on the generation are atomic.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from tests.servers.go_programs import go_program
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
ACCOUNT = "tests@commitlake.iam.gserviceaccount.com"
READY_TIMEOUT_SECONDS = 60
_AUDIENCE = "https://oauth2.googleapis.com/token"


class TokenServer(ThreadingHTTPServer):
    """Server that issues tokens for requests signed with the account's key.

    Attributes:
        token: the token that it issues.
        private_key: the account's key, as PEM.
    """

    daemon_threads = True

    def __init__(self) -> None:
        """Create the key, and start serving."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.token = f"ya29.{secrets.token_hex(16)}"
        self.private_key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        self._public_key = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        super().__init__(("127.0.0.1", 0), _TokenHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """URL of the server, for key files."""
        return f"http://127.0.0.1:{self.server_address[1]}/token"

    def answer_to(self, form: str) -> tuple[int, dict[str, str | int]]:
        """Return the status and the answer to a request for a token."""
        try:
            assertion = parse_qs(form)["assertion"][0]
            claims = jwt.decode(assertion, certs=self._public_key, audience=_AUDIENCE)  # type: ignore[no-untyped-call]
        except (KeyError, ValueError):
            return 400, {"error": "invalid_grant", "error_description": f"not signed: {form[:100]}"}
        if claims["iss"] != ACCOUNT:
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": self.token, "expires_in": 3600, "token_type": "Bearer"}


class _TokenHandler(BaseHTTPRequestHandler):
    """Handler of one request for a token."""

    def do_POST(self) -> None:
        """Answer it."""
        assert isinstance(self.server, TokenServer)
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status, answer = self.server.answer_to(form)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class GcsServer(Server):
    """One server, and its token server; the content of buckets is lost when it is killed."""

    def __init__(self, folder: Path) -> None:
        """Describe the server; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, created if it does not exist.
        """
        self._folder = folder
        self._port = free_ports(1)
        self._process: ServerProcess | None = None
        self._tokens: TokenServer | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return the address at which it listens; a restart does not change it."""
        return "127.0.0.1", self._port

    @property
    def endpoint(self) -> str:
        """URL of the server for clients."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the servers and wait until they answer."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._tokens = self._tokens or TokenServer()
        self.write_key("key.json", self._tokens.private_key)
        command = [str(go_program(MODULE, VERSION)), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
        command += ["-port", str(self._port), "-log-level", "warn"]
        self._process = ServerProcess("fake-gcs-server", command, self._folder / "gcs.log")
        self._process.wait_until(self._answers, READY_TIMEOUT_SECONDS)
        return self

    def kill(self) -> None:
        """End the server with SIGKILL, and stop the token server."""
        if self._process is not None:
            self._process.kill()
        if self._tokens is not None:
            self._tokens.shutdown()
            self._tokens.server_close()
            self._tokens = None

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Return a client's environment variables: the server's address and the account's key file.

        Args:
            endpoint: Another URL of the server, such as a proxy's.
        """
        return {
            "COMMITLAKE_GCS_ENDPOINT": endpoint or self.endpoint,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._folder / "key.json"),
            "NO_GCE_CHECK": "true",
        }

    def write_key(self, name: str, private_key: str) -> Path:
        """Write a key file of the account, and return its path.

        Args:
            name: Name of the file.
            private_key: The key as PEM; tokens are issued for the account's key only.
        """
        assert self._tokens is not None
        path = self._folder / name
        fields = {
            "type": "service_account",
            "project_id": "commitlake",
            "private_key_id": "1",
            "private_key": private_key,
            "client_email": ACCOUNT,
            "token_uri": self._tokens.url,
        }
        path.write_text(json.dumps(fields))
        path.chmod(0o600)
        return path

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.request(
                "POST", "/storage/v1/b", json.dumps({"name": name}), {"Content-Type": "application/json"}
            )
            assert connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0


def other_key() -> str:
    """Return a key that is not the account's, as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
