"""Masters and slaves of broker_lite, and the comparison of their logs."""

from __future__ import annotations

from pathlib import Path

from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.servers.process import free_ports
from tests.support.waiting import wait_until


class MemberLite(BrokerLite):
    """A broker that is killed repeatedly, with its own name server or an existing one."""

    def __init__(self, folder: Path, *options: str, name_server: str | None = None) -> None:
        register = ("--register", name_server, "--namesrv", "none") if name_server else ()
        # A master also uses its port minus 2.
        super().__init__(folder, options=(*SMALL_FILES, *options), broker_port=free_ports(4) + 2)
        # If an option is given twice, the last one counts.
        self._options = (*self._options, *register)
        self._registered_at = name_server

    @property
    def name_server_address(self) -> str:
        """Return the address of its name server."""
        return self._registered_at or super().name_server_address

    def kill(self) -> None:
        """Kill the running process, if any."""
        self.process.kill()


def master_lite(folder: Path, *options: str, name_server: str | None = None) -> MemberLite:
    """Create a master that serves slaves."""
    return MemberLite(folder, "--ha-listen", f"127.0.0.1:{free_ports(1)}", *options, name_server=name_server)


def slave_lite(folder: Path, name_server: str) -> MemberLite:
    """Create a slave."""
    return MemberLite(folder, "--role", "SLAVE", name_server=name_server)


def log_files(store: Path) -> dict[str, bytes]:
    """Return the bytes of every segment, without the one that RocketMQ creates in advance."""
    found = {path.name: path.read_bytes() for path in sorted((store / "commitlog").glob("*"))}
    return {name: data for name, data in found.items() if data.strip(b"\0")}


def wait_until_same(master: Path, slave: Path) -> None:
    """Wait until a slave has the master's log, from the slave's first segment on."""

    def same() -> bool:
        ours, theirs = log_files(slave), log_files(master)
        return bool(ours) and ours == {name: data for name, data in theirs.items() if name >= min(ours)}

    wait_until(same)
