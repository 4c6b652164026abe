"""A real API server of Kubernetes on the loopback address, with its etcd, roles and service accounts.

    with Kubernetes(folder) as kubernetes:
        kubernetes.create("/api/v1/namespaces", {"metadata": {"name": "commitlake"}})

There are no controllers, no scheduler and no nodes; only tests create pods for jobs, and run pods (see
`tests.support.pods`). The server is built once from the Go module in `kubernetes_api`, which takes some minutes.
"""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.servers.go_programs import go_folder
from tests.servers.process import ServerProcess, free_ports
from tests.servers.server import Server

SOURCES = Path(__file__).with_name("kubernetes_api")
READY_TIMEOUT_SECONDS = 240
_ADMIN = "administrator"
_IP = "127.0.0.1"


class Kubernetes(Server):
    """The API server.

    Attributes:
        folder: folder of its data and log.
        port: port of the API.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the server; `start`, or entering the context, starts it."""
        self.folder = folder
        self.port = free_ports(3)
        self._process: ServerProcess | None = None

    @property
    def certificate(self) -> Path:
        """Path of the server's certificate."""
        return self.folder / "certificates" / "apiserver.crt"

    def start(self) -> Kubernetes:
        """Start the server.

        Raises:
            ServerError: It did not start.
        """
        program = go_folder(SOURCES)
        self.folder.mkdir(parents=True, exist_ok=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private, public = self.folder / "accounts.key", self.folder / "accounts.pub"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{_ADMIN},{_ADMIN},{_ADMIN},"system:masters"\n')
        options = {
            "secure-port": self.port, "bind-address": _IP, "advertise-address": _IP,
            "cert-dir": self.certificate.parent, "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": "10.0.0.0/24", "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": public, "service-account-signing-key-file": private,
            "authorization-mode": "RBAC", "token-auth-file": tokens,
        }  # fmt: skip
        command = [str(program), str(self.folder / "etcd"), str(self.port + 1), str(self.port + 2)]
        command += [f"--{name}={value}" for name, value in options.items()]
        self._process = ServerProcess("kubernetes", command, self.folder / "kubernetes.log")
        self._process.wait_until(self._is_ready, READY_TIMEOUT_SECONDS)
        return self

    def _is_ready(self) -> bool:
        try:
            with self._open("GET", "/readyz", None, "") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str) -> dict[str, Any]:
        """Return an object, or a list of objects."""
        with self._open("GET", path, None, "") as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def create(self, path: str, what: dict[str, Any]) -> dict[str, Any]:
        """Create an object, which the server validates, and return it."""
        with self._open("POST", f"{path}?fieldValidation=Strict", what, "application/json") as answer:
            created: dict[str, Any] = json.load(answer)
        return created

    def set_status(self, path: str, status: dict[str, Any]) -> None:
        """Change the status of an object, unless it was deleted meanwhile."""
        try:
            self._open("PATCH", f"{path}/status", {"status": status}, "application/strategic-merge-patch+json").close()
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def delete(self, path: str) -> None:
        """Delete an object at once, unless it was deleted before."""
        try:
            self._open("DELETE", path, {"gracePeriodSeconds": 0}, "application/json").close()
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def _open(self, method: str, path: str, body: dict[str, Any] | None, kind: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://{_IP}:{self.port}{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {_ADMIN}")
        if data is not None:
            request.add_header("Content-Type", kind)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return urllib.request.urlopen(request, context=context, timeout=60)

    def kill(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
