"""Host in a record: 4 or 16 address bytes, then the port as an int32.

A sysFlag bit for each host selects the size; there is no length byte. Source:
MessageExt.socketAddress2ByteBuffer.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

PORT_SIZE = 4
V4_SIZE = 4 + PORT_SIZE
V6_SIZE = 16 + PORT_SIZE
_PORT = struct.Struct(">i")
_V4_MAPPED = bytes(10) + b"\xff\xff"


class Host(NamedTuple):
    """Address (4 or 16 bytes) and port; `str` returns `ip:port`, IPv6 in brackets."""

    address: bytes
    port: int

    @classmethod
    def of(cls, ip: str, port: int) -> Host:
        """Create a host from an address in text form.

        Raises:
            ValueError: if `ip` is not an IPv4 or IPv6 address.
        """
        return cls(ipaddress.ip_address(ip).packed, port)

    @property
    def is_v6(self) -> bool:
        """True if the address has 16 bytes."""
        return len(self.address) == 16

    @property
    def is_loopback(self) -> bool:
        """True for a loopback address: 127.0.0.0/8 or ::1, also 127.0.0.0/8 mapped to IPv6."""
        ip = ipaddress.ip_address(self.address)
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback

    @property
    def network_prefix(self) -> bytes:
        """Part of the address that per-address limits use: the first 64 bits for IPv6, the whole address for IPv4."""
        if not self.is_v6:
            return self.address
        return self.address[12:] if self.address.startswith(_V4_MAPPED) else self.address[:8]

    def __str__(self) -> str:
        ip = ipaddress.ip_address(self.address)
        return f"[{ip}]:{self.port}" if self.is_v6 else f"{ip}:{self.port}"


def host_size(is_v6: bool) -> int:
    """Return the size of a host as it is stored, in bytes."""
    return V6_SIZE if is_v6 else V4_SIZE


def parse_host(buffer: bytes | bytearray | memoryview, offset: int, is_v6: bool) -> Host:
    """Parse the host at `offset`; the caller ensures that it is within the buffer."""
    end = offset + host_size(is_v6) - PORT_SIZE
    return Host(bytes(buffer[offset:end]), _PORT.unpack_from(buffer, end)[0])


def serialize_host(host: Host) -> bytes:
    """Return the stored form of a host."""
    return host.address + _PORT.pack(host.port)
