"""Names in the folder of a table; without imports, so that commands can check a lake quickly at their start."""

LOG = "_delta_log"
"""Folder of a table's log."""
SEALS = f"{LOG}/_seals"
"""Folder of the log's seals, see `delta_log.seals`."""
POINTER = "_last_checkpoint"
"""File of a log that names its newest checkpoint."""
