"""The example manifests for Kubernetes, with their containers as processes of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "conf" / "examples"
FOLDER = EXAMPLES / "kubernetes"
SETTINGS = "commitlake.toml"
POD_IP = "127.0.55.57"
"""A separate loopback address, so that the manifests' ports are free."""


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pod_spec(kind: str, name: str) -> dict[str, Any]:
    """Return the pod specification of a CronJob or Deployment; the manifest file has its name."""
    (found,) = (
        document
        for document in documents(f"{name}.yaml")
        if document["kind"] == kind and document["metadata"]["name"] == f"commitlake-{name}"
    )
    spec = found["spec"]
    spec = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a pod in the order in which they start."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def entry_point() -> list[str]:
    """Return the command that the image runs."""
    line: str
    (line,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', (EXAMPLES / "Dockerfile").read_text(), re.MULTILINE)
    return line.split('", "')


@dataclass(frozen=True)
class Machine:
    """A folder that has the volumes of the pods, by their names in the manifests.

    Attributes:
        folder: the folder.
    """

    folder: Path

    @property
    def stores(self) -> Path:
        """The volume of the brokers' stores."""
        return self.folder / "stores"

    @property
    def lake(self) -> Path:
        """The volume of the lake."""
        return self.folder / "lake"

    def start(self, container: dict[str, Any]) -> subprocess.Popen[str]:
        """Start the command of a container, with the mounted paths replaced by folders of this machine.

        Args:
            container: from a manifest.
        """
        mounts = {mount["mountPath"]: self.folder / mount["name"] for mount in container["volumeMounts"]}
        for place in mounts.values():
            place.mkdir(exist_ok=True)
        settings = (FOLDER / SETTINGS).read_text()
        (self.folder / "config" / SETTINGS).write_text(moved(settings, {"/stores": self.stores, "/lake": self.lake}))
        home = self.folder / "home"  # in the image, this folder is not writable
        home.mkdir(exist_ok=True)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "XDG_CACHE_HOME": str(mounts["/home/commitlake/.cache"]),
            "TMPDIR": str(mounts["/tmp"]),
        }
        command = [*container.get("command", entry_point()), *container["args"]]
        for variable in container.get("env", []):
            assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
            environment[variable["name"]] = POD_IP
            command = [word.replace(f"$({variable['name']})", POD_IP) for word in command]
        for name in ("JAVA_HOME", "COMMITLAKE_JARS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        return subprocess.Popen(
            [moved(word, mounts) for word in command],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, container: dict[str, Any]) -> tuple[int, str]:
        """Run a container to its end; return its exit code and output."""
        with self.start(container) as process:
            output = process.communicate()[0]
        return process.returncode, output

    def written_beside_volumes(self) -> list[Path]:
        """Return files that containers wrote elsewhere, which a read-only root file system would refuse."""
        return sorted((self.folder / "home").rglob("*"))


def stop(process: subprocess.Popen[str], pod: dict[str, Any]) -> tuple[int, str]:
    """End a process as Kubernetes does, with SIGTERM; return exit code and output.

    Raises:
        subprocess.TimeoutExpired: it has not ended in the pod's grace period, in which Kubernetes would kill it.
    """
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=pod["terminationGracePeriodSeconds"])[0]
    return process.returncode, output


def moved(text: str, places: dict[str, Path]) -> str:
    """Replace paths of a container, all at once, because a new path may contain another old one."""
    paths = "|".join(re.escape(path) for path in places)
    return re.sub(rf"(?<![\w/.])({paths})(?=[/\"]|$)", lambda found: str(places[found[1]]), text)
