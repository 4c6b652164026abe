"""Versions of peers: ordinals of RocketMQ's MQVersion, and the behaviour that depends on them."""

from __future__ import annotations

from enum import IntEnum

from commitlake.schemas.remoting.frames import VERSION, Language

__all__ = ["VERSION", "Language", "Version", "version_name"]


class Version(IntEnum):
    """Ordinals of versions that affect behaviour, or that were observed."""

    V3_0_11 = 37
    """First version in which a broker registers with the whole RegisterBrokerBody."""
    V3_4_9 = 121
    """First version in which a consumer's `maxReconsumeTimes` is used."""
    V4_0_0 = 213
    V4_9_4 = 401
    """First version for which a name server writes routes in plain JSON, and whose signatures cover every ext field."""
    V4_9_7 = 407
    V4_9_8 = 409
    V5_0_0 = 413
    """First version in which a compressed registration ends with a mapping of static topics."""
    V5_1_0 = 433
    V5_3_3 = 479
    V5_3_4 = 481
    V5_5_0 = 513


assert Version.V4_9_8 == VERSION


def version_name(ordinal: int) -> str:
    """Return the name of a version: `V5_5_0`, or `version 500` if it is unknown."""
    try:
        return Version(ordinal).name
    except ValueError:
        return f"version {ordinal}"
