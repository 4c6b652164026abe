"""A real S3-compatible server on a local folder: versitygw, whose conditional puts are atomic.

    with S3Server(folder) as server:
        server.client().create_bucket(Bucket="lake")

It listens on the loopback address. Its credentials are random, and come to clients by the environment, as the jobs
take them: `server.environment()`.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config

from tests.servers.go_programs import go_program
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
REGION = "us-east-1"
READY_TIMEOUT_SECONDS = 60


class S3Server(Server):
    """One server; the content of its buckets is kept when it is killed and started again.

    Attributes:
        access_key: The only user's.
        secret_key: The only user's.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the server; `start`, or entering the context, starts it.

        Args:
            folder: An own folder, made if it is not there.
        """
        self.access_key = f"key{secrets.token_hex(8)}"
        self.secret_key = secrets.token_hex(20)
        self._folder = folder
        self._port = free_ports(1)
        self._process: ServerProcess | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return the address where it listens, which does not change at a restart."""
        return "127.0.0.1", self._port

    @property
    def endpoint(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        command = [str(go_program(MODULE, VERSION)), "--port", f"127.0.0.1:{self._port}", "--region", REGION, "--quiet"]
        credentials = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        command += ["posix", *self._metadata_options(), str(self._folder / "data")]
        self._process = ServerProcess("versitygw", command, self._folder / "versitygw.log", credentials)
        self._process.wait_until(self._answers, READY_TIMEOUT_SECONDS)
        return self

    def kill(self) -> None:
        """End the server by SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the environment of a client: where the server is, and its credentials.

        Args:
            endpoint: Another URL that leads to the server.
        """
        return {
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
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

    def _metadata_options(self) -> list[str]:
        """Return options that keep metadata in extended attributes, or next to the data if the file system has none."""
        try:
            os.setxattr(self._folder, "user.commitlake", b"1")
        except OSError:
            beside = self._folder / "metadata"
            beside.mkdir(exist_ok=True)
            return ["--sidecar", str(beside)]
        return []

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0
