"""Lanes of a picture: a column for each topic and each group, with a track in it for each message.

Two messages that overlap in time have different tracks, as long as there are free tracks, so that their lines in one
topic can be distinguished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.jobs.lineage.picture.picture_rows import PictureRow
from commitlake.pipelines.lineage.message_history import Step, StepKind
from commitlake.schemas.formatted_counts import format_count

MAX_LANES = 12
"""Largest number of columns that fit on a phone; page.css has a class for each number of them."""
MAX_TRACKS = 4
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Lane:
    """Column in the picture of a message's story, for one topic or group, or for all those without their own column.

    Attributes:
        name: The topic or the group; empty if unknown.
        kind: `topic`, `group`, or `others` for topics and groups without a column of their own.
        count: Number of topics and groups in the lane.
    """

    name: str
    kind: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Lanes:
    """Columns (lanes) in the picture of a message's story, and the positions within them (tracks).

    Attributes:
        lanes: Columns from the left: topics in the order in which they occur in the story, then groups.
        place_of: Index in `lanes`, by kind and name of a step.
        track_of: Track of each message, by message number.
        tracks: Number of parallel tracks in each lane.
    """

    lanes: Sequence[Lane]
    place_of: dict[tuple[str, str], int]
    track_of: dict[int, int]
    tracks: int

    def lane_index(self, step: Step) -> int:
        """Return the index of the lane, the column of a topic or group, in which a step is drawn."""
        return self.place_of[lane_key(step)]

    def horizontal_position(self, row: PictureRow) -> float:
        """Return the horizontal position at which a row's step is drawn, from 0 to 1."""
        within = (self.track_of.get(row.message, 0) + 1) / (self.tracks + 1)
        return (self.lane_index(row.step) + within) / len(self.lanes)


def lane_key(step: Step) -> tuple[str, str]:
    """Return the kind and name of a step's lane, because a topic and a group may have the same name."""
    return "group" if step.kind is StepKind.CONSUMPTION else "topic", step.lane


def assign_lanes(rows: Sequence[PictureRow]) -> Lanes:
    """Assign lanes (columns for topics and groups) and tracks (positions within lanes) to rows of a picture."""
    drawn = [row for row in rows if not row.is_folded]
    counts = Counter(lane_key(row.step) for row in drawn)
    keys = sorted(dict.fromkeys(lane_key(row.step) for row in drawn), key=lambda key: key[0] == "group")
    own = keys
    if len(keys) > MAX_LANES:
        largest = {key for key, _ in counts.most_common(MAX_LANES - 1)}
        own = [key for key in keys if key in largest]
    place_of = {key: place for place, key in enumerate(own)}
    lanes = [Lane(name, kind) for kind, name in own]
    if others := [key for key in keys if key not in place_of]:
        place_of.update(dict.fromkeys(others, len(lanes)))
        lanes.append(Lane(format_count(len(others), "other", "others"), OTHERS, len(others)))
    track_of = _assign_lane_tracks(drawn)
    return Lanes(lanes or [Lane("", "topic")], place_of, track_of, max(track_of.values(), default=0) + 1)


def _assign_lane_tracks(rows: Sequence[PictureRow]) -> dict[int, int]:
    """Assign a track to each message; messages whose rows do not overlap may share a track."""
    last = {row.message: row.place for row in rows}
    free_from = [-1] * MAX_TRACKS
    found: dict[int, int] = {}
    for row in rows:
        if row.message in found:
            continue
        track = next((track for track, end in enumerate(free_from) if end < row.place), None)
        if track is None:  # more parallel messages than tracks: use the track that is free first
            track = free_from.index(min(free_from))
        found[row.message] = track
        free_from[track] = max(free_from[track], last[row.message])
    return found
