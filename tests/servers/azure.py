"""A server of Azure's blob protocol on a local folder: Azurite, Microsoft's emulator.

    with AzureServer(folder) as server:
        server.create_container("logs")

It listens on the loopback address. Its account has a random key, which clients get from environment variables, as jobs
do: `server.environment()`. It has no hierarchical namespaces, and CommitLake's client does not use them.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import secrets
import socket
from pathlib import Path
from typing import Self

from tests.servers.node_programs import node_command, node_program
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server

PACKAGE = "azurite"
ACCOUNT = "commitlaketests"
READY_TIMEOUT_SECONDS = 120
_VERSION = "2021-08-06"


class AzureServer(Server):
    """One server; the content of its containers is kept when it is killed and started again.

    Attributes:
        key: The account's key.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the server; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, created if it does not exist.
        """
        self.key = base64.b64encode(secrets.token_bytes(64)).decode()
        self._folder = folder
        self._port = free_ports(1)
        self._process: ServerProcess | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return the address at which it listens; a restart does not change it."""
        return "127.0.0.1", self._port

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        program = node_program(PACKAGE) / "dist" / "src" / "blob" / "main.js"
        command = [str(node_command()), str(program), "--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        command += ["--location", str(self._folder), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.key}"}
        self._process = ServerProcess("azurite", command, self._folder / "azurite.log", accounts)
        self._process.wait_until(self._answers, READY_TIMEOUT_SECONDS)
        return self

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Return a client's environment variables: the server's address and the account's key.

        Args:
            endpoint: Another URL of the server, such as a proxy's.
        """
        return {
            "AZURE_STORAGE_ENDPOINT": f"{endpoint or f'http://127.0.0.1:{self._port}'}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
        }

    def create_container(self, name: str) -> None:
        """Create an empty container with a request signed by the shared key."""
        date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        path = f"/{ACCOUNT}/{ACCOUNT}/{name}"
        text = f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{_VERSION}\n{path}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
            assert connection.getresponse().status == http.HTTPStatus.CREATED
        finally:
            connection.close()

    def uri(self, container: str, prefix: str) -> str:
        """Return the URI of a prefix, as a user writes it for Azure."""
        return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/{prefix}"

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0
