"""Names in the folder of a table. This module imports nothing, so that commands can check a lake before they load."""

LOG = "_delta_log"
"""Folder of a table's log."""
SEALS = f"{LOG}/_seals"
"""Folder of the log's seals, see `delta_log.seals`."""
POINTER = "_last_checkpoint"
"""File of a log that names its newest checkpoint."""
