"""An S3-compatible server on a local folder: versitygw, whose conditional puts are atomic.

It is built once from the Go module in `s3_server`, which has the parts of versitygw that serve S3 from a folder.

    with S3Server(folder) as server:
        server.client().create_bucket(Bucket="lake")

It listens on the loopback address. Its credentials are random; clients get them from environment variables, as jobs do:
`server.environment()`.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config

from tests.servers.go_programs import go_folder
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server

SOURCES = Path(__file__).with_name("s3_server")
REGION = "us-east-1"
READY_TIMEOUT_SECONDS = 60
UNSET = ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN")
"""Variables that would lead clients to another server or user."""


class S3Server(Server):
    """One server; the content of its buckets is kept when it is killed and started again.

    Attributes:
        access_key: Access key of the only user.
        secret_key: Secret key of the only user.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the server; `start`, or entering the context, starts it.

        Args:
            folder: A folder of its own, created if it does not exist.
        """
        self.access_key = f"key{secrets.token_hex(8)}"
        self.secret_key = secrets.token_hex(20)
        self._folder = folder
        self._port = free_ports(1)
        self._process: ServerProcess | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return the address at which it listens; a restart does not change it."""
        return "127.0.0.1", self._port

    @property
    def endpoint(self) -> str:
        """URL of the server for clients."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        command = [str(go_folder(SOURCES)), str(self._port), REGION, str(data), *self._metadata_folder()]
        credentials = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        self._process = ServerProcess("s3_server", command, self._folder / "s3_server.log", credentials)
        self._process.wait_until(self._answers, READY_TIMEOUT_SECONDS)
        return self

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Return a client's environment variables: the server's address and its credentials, and no profile.

        Args:
            endpoint: Another URL of the server, such as a proxy's.
        """
        return {
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """Return a client for the tests' own reads and writes."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    def _metadata_folder(self) -> list[str]:
        """Return a folder for metadata if the file system has no extended attributes, where it is kept otherwise."""
        try:
            os.setxattr(self._folder, "user.commitlake", b"1")
        except OSError:
            beside = self._folder / "metadata"
            beside.mkdir(exist_ok=True)
            return [str(beside)]
        return []

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0
