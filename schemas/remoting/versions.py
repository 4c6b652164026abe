"""Versions as they travel: ordinals of RocketMQ's MQVersion, and what a peer's version decides."""

from __future__ import annotations

from enum import IntEnum

from commitlake.schemas.remoting.frames import VERSION, Language

__all__ = ["VERSION", "Language", "Version", "version_name"]


class Version(IntEnum):
    """The ordinals that something depends on, and those that were seen."""

    V3_0_11 = 37
    """From here on a broker registers with the whole RegisterBrokerBody."""
    V3_4_9 = 121
    """From here on a consumer's `maxReconsumeTimes` counts."""
    V4_0_0 = 213
    V4_9_4 = 401
    """From here on a name server writes routes in plain JSON, and ACL signatures cover every ext field."""
    V4_9_7 = 407
    V4_9_8 = 409
    V5_0_0 = 413
    """From here on a compressed registration ends in a mapping of static topics."""
    V5_1_0 = 433
    V5_3_3 = 479
    V5_3_4 = 481
    V5_5_0 = 513


assert Version.V4_9_8 == VERSION


def version_name(ordinal: int) -> str:
    """A version for people: `V5_5_0`, or `version 500` where its name is not known here."""
    try:
        return Version(ordinal).name
    except ValueError:
        return f"version {ordinal}"
