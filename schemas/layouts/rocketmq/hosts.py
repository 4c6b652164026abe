"""A host as a record stores it: 4 or 16 address bytes, then the port as an int32.

Which of the two is told by a sysFlag bit for each host, never by a length byte. Source:
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
    """An address (4 or 16 bytes) and a port; `str` gives `ip:port`, IPv6 in brackets."""

    address: bytes
    port: int

    @classmethod
    def of(cls, ip: str, port: int) -> Host:
        """A host from an address in text form.

        Raises:
            ValueError: if `ip` is not an IPv4 or IPv6 address.
        """
        return cls(ipaddress.ip_address(ip).packed, port)

    @property
    def is_v6(self) -> bool:
        """Whether the address has 16 bytes."""
        return len(self.address) == 16

    @property
    def is_loopback(self) -> bool:
        """Whether this is an address of the machine itself: 127.0.0.0/8 or ::1, also 127.0.0.0/8 within IPv6."""
        ip = ipaddress.ip_address(self.address)
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback

    @property
    def site(self) -> bytes:
        """Part of the address that limits per address count by: of IPv6 64 bits, as one host has all the rest."""
        if not self.is_v6:
            return self.address
        return self.address[12:] if self.address.startswith(_V4_MAPPED) else self.address[:8]

    def __str__(self) -> str:
        ip = ipaddress.ip_address(self.address)
        return f"[{ip}]:{self.port}" if self.is_v6 else f"{ip}:{self.port}"


def host_size(is_v6: bool) -> int:
    """Stored size in bytes."""
    return V6_SIZE if is_v6 else V4_SIZE


def parse_host(buffer: bytes | bytearray | memoryview, offset: int, is_v6: bool) -> Host:
    """The host stored at `offset`; the caller has checked that it lies within the buffer."""
    end = offset + host_size(is_v6) - PORT_SIZE
    return Host(bytes(buffer[offset:end]), _PORT.unpack_from(buffer, end)[0])


def serialize_host(host: Host) -> bytes:
    """The stored form of a host."""
    return host.address + _PORT.pack(host.port)
