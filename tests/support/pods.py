"""Pods of a namespace as processes of this machine, which replaces node and image.

The API server of `tests.servers.kubernetes` has no nodes. `Pods` watches it, starts the command of each pod's container
with its variables and volumes, reports the status of pods to the server, and ends the processes of deleted pods. Paths
of volumes are replaced by folders of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.error
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from commitlake.connectors.spark.java import java_home
from tests.servers.kubernetes import Kubernetes
from tests.support.kubernetes_manifests import moved
from tests.support.process_trees import kill_tree

IP = "127.0.0.1"
_LOOK_SECONDS = 0.3
_CONTAINER = (
    "unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
)  # fmt: skip
"""As in a container, the process is the first one, and all others end with it."""
Pod = dict[str, Any]


class Pods:
    """The processes of a namespace's pods; a context manager.

    Attributes:
        claims: folder with a volume for each claim, by name.
        processes: processes of the started pods, by name.
    """

    def __init__(self, kubernetes: Kubernetes, namespace: str, folder: Path) -> None:
        """Describe the pods; entering the context starts to watch.

        Args:
            kubernetes: the API server.
            namespace: the namespace.
            folder: a folder of its own, for volumes and output.
        """
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._core = f"/api/v1/namespaces/{namespace}"
        self._folder = folder
        self._ended: set[str] = set()
        self._closing = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="pods")
        self._error: BaseException | None = None
        self.claims = folder / "claims"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start to watch."""
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        self._closing.set()
        self._watching.join()
        for process in self.processes.values():
            if process.poll() is None:
                kill_tree(process.pid)
            process.wait()
        if self._error is not None and kind is None:
            raise self._error

    def output(self, name: str) -> str:
        """Return the output of a pod."""
        return self._output(name).read_text(errors="replace")

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a pod, or None if it has not ended.

        Raises:
            BaseException: error that ended the watching.
        """
        if self._error is not None:
            raise self._error
        process = self.processes.get(name)
        return None if process is None else process.poll()

    def names(self) -> list[str]:
        """Return the names of the pods on the server."""
        return [pod["metadata"]["name"] for pod in self._kubernetes.ask(f"{self._core}/pods")["items"]]

    def _output(self, name: str) -> Path:
        return self._folder / name / "output"

    def _watch(self) -> None:
        try:
            while not self._closing.wait(_LOOK_SECONDS):
                self._look()
        except BaseException as error:  # noqa: BLE001 (raised again in the test)
            self._error = error

    def _look(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self._kubernetes.ask(f"{self._core}/pods")["items"]}
        for name, pod in pods.items():
            if name not in self.processes and pod["status"]["phase"] == "Pending":
                self._start(name, pod)
        for name, process in list(self.processes.items()):
            pod = pods.get(name)
            code = process.poll()
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                if code is None:
                    process.terminate()
                elif pod is not None:
                    self._kubernetes.delete(f"{self._core}/pods/{name}")
            elif code is not None and name not in self._ended:
                self._ended.add(name)
                ended = {"exitCode": code if code >= 0 else 128 - code}
                self._tell(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def _start(self, name: str, pod: Pod) -> None:
        (container,) = pod["spec"]["containers"]
        settings = self._settings(pod)
        if settings is None:
            return
        places, variables = self._mounted(name, pod, container)
        for folder, files in settings.items():
            for file, text in files.items():
                (self._folder / name / folder / file).write_text(moved(text, places))
        values = {"status.podIP": IP, "metadata.name": name, "metadata.namespace": self._namespace}
        for variable in container.get("env", []):
            given = variable.get("valueFrom")
            value = values[given["fieldRef"]["fieldPath"]] if given else variable.get("value", "")
            variables[variable["name"]] = moved(value, places)
        words = [*container["command"], *container["args"]]
        for variable, value in variables.items():
            words = [word.replace(f"$({variable})", value) for word in words]
        server = f"https://{IP}:{self._kubernetes.port}"
        words = [moved(word, places).replace("https://kubernetes.default.svc", server) for word in words]
        with self._output(name).open("wb") as output:
            self.processes[name] = subprocess.Popen(
                [*_CONTAINER, *words],
                cwd=places.get(container.get("workingDir", ""), self._folder / name),
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._tell(pod, "Running", {"running": {}})

    def _settings(self, pod: Pod) -> dict[str, dict[str, str]] | None:
        """Return the files of config maps by volume; None if one does not exist yet: Spark makes it after the pods."""
        found = {}
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                try:
                    of_volume = self._kubernetes.ask(f"{self._core}/configmaps/{volume['configMap']['name']}")
                except urllib.error.HTTPError as error:
                    if error.code != 404:
                        raise
                    return None
                found[volume["name"]] = of_volume["data"]
        return found

    def _mounted(self, name: str, pod: Pod, container: dict[str, Any]) -> tuple[dict[str, Path], dict[str, str]]:
        """Create the volumes of a container; return their folders by path, and its first variables."""
        own = self._folder / name
        (own / "home").mkdir(parents=True)
        variables = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(own / "home"), "LANG": "C.UTF-8",
            "JAVA_HOME": str(java_home()), "KUBERNETES_SERVICE_HOST": IP,
            "KUBERNETES_SERVICE_PORT": str(self._kubernetes.port),
        }  # fmt: skip
        if "COMMITLAKE_JARS" in os.environ:
            variables["COMMITLAKE_JARS"] = os.environ["COMMITLAKE_JARS"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        places: dict[str, Path] = {}
        for mount in container["volumeMounts"]:
            volume, place = volumes[mount["name"]], own / mount["name"]
            if "persistentVolumeClaim" in volume:
                place = self.claims / volume["persistentVolumeClaim"]["claimName"]
            elif "projected" in volume:
                variables |= self._account(place, pod)
            places[mount["mountPath"]] = place
            place.mkdir(parents=True, exist_ok=True)
        variables["TMPDIR"] = str(places["/tmp"])
        variables["XDG_CACHE_HOME"] = str(places["/home/commitlake/.cache"])
        return places, variables

    def _account(self, place: Path, pod: Pod) -> dict[str, str]:
        """Write the token of a pod's service account; return variables that name it for Spark's client."""
        place.mkdir(parents=True)
        account = f"{self._core}/serviceaccounts/{pod['spec']['serviceAccountName']}/token"
        (place / "token").write_text(self._kubernetes.create(account, {"spec": {}})["status"]["token"])
        return {
            "KUBERNETES_AUTH_SERVICEACCOUNT_TOKEN": str(place / "token"),
            "KUBERNETES_CERTS_CA_FILE": str(self._kubernetes.certificate),
        }

    def _tell(self, pod: Pod, phase: str, state: dict[str, Any]) -> None:
        (container,) = pod["spec"]["containers"]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"running": {"startedAt": now}} if "running" in state else {
            "terminated": {**state["terminated"], "startedAt": now, "finishedAt": now}
        }  # fmt: skip
        of_container = {
            "name": container["name"], "image": container["image"], "imageID": "none", "restartCount": 0,
            "ready": phase == "Running", "state": state,
        }  # fmt: skip
        status = {"phase": phase, "podIP": IP, "podIPs": [{"ip": IP}], "startTime": now}
        path = f"{self._core}/pods/{pod['metadata']['name']}"
        self._kubernetes.set_status(path, {**status, "containerStatuses": [of_container]})
