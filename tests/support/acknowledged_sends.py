"""A producer that records acknowledged messages, while its broker is killed."""

from __future__ import annotations

import socket
import threading

from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command, parse_command, serialize_command
from tests.support.brokers import send_fields

PIPELINED = 20


class Producer(threading.Thread):
    """Sends until its connection breaks, several messages at once, and records the acknowledged ones."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(name=name)
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self.acknowledged: dict[str, str] = {}

    def run(self) -> None:
        """Send and read in turns."""
        buffer = bytearray()
        number = 0
        try:
            while True:
                asked = {}
                for _ in range(PIPELINED):
                    key = f"{self.name}-{number:06d}"
                    fields = {
                        one: str(value) for one, value in send_fields("orders", {"UNIQ_KEY": key}, e=number % 4).items()
                    }
                    asked[number] = key
                    self._socket.sendall(
                        serialize_command(Command(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 300, opaque=number))
                    )
                    number += 1
                while asked:
                    while (parsed := parse_command(buffer)) is None:
                        data = self._socket.recv(1 << 16)
                        if not data:
                            return
                        buffer += data
                    answer, size = parsed
                    del buffer[:size]
                    assert answer.code == ResponseCode.SUCCESS, answer
                    self.acknowledged[asked.pop(answer.opaque)] = answer.ext_fields["msgId"]
        except OSError:
            return
        finally:
            self._socket.close()
