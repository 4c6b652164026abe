"""Every class of finding: how bad it is, where it comes from, and what to do about it.

Severities follow from what is lost. DAMAGE: messages cannot be had any longer, or are about to be. REPAIRABLE: the log
has them, and what leads to them is wrong; it can be made again from the log. INFO: nothing is wrong, but somebody who
looks into a store's troubles wants to know.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    DAMAGE = "damage"
    REPAIRABLE = "repairable"
    INFO = "info"


class FindingClass(NamedTuple):
    """One class of finding.

    Attributes:
        code: its name, for programs.
        severity: how bad it is.
        cause: where it comes from, in a sentence.
        action: what to do.
    """

    code: str
    severity: Severity
    cause: str
    action: str


_SALVAGE = (
    "archive what is intact now; 'commitlake rebuild --salvage' writes a log that RocketMQ's broker reads to its end; "
    "one of JMQ steps over what it cannot read"
)
_REBUILD = "'commitlake rebuild' makes it from the log; a stopped broker does so itself if it finds none"
_RESTART = "nothing: a broker mends it when it starts"
_DELAYS = "nothing; give the broker's settings to verify and rebuild with --broker-conf"
_D, _R, _I = Severity.DAMAGE, Severity.REPAIRABLE, Severity.INFO

_Class = FindingClass

_ALL = (
    # The log, byte by byte.
    _Class("log_bad_magic", _D, "Bytes were overwritten or never got to the disk where a record begins", _SALVAGE),
    _Class("log_bad_size", _D, "A record's size is not one that a record can have", _SALVAGE),
    _Class("log_bad_offset", _D, "A record says of itself that it stands at another offset", _SALVAGE),
    _Class("log_reused_file", _D, "A record of another segment stands at the same place in this file: the file was "
                 "used again or given another's name", "look for the segment's own file in a backup; " + _SALVAGE),
    _Class("log_bad_lengths", _D, "The lengths of a record's parts do not add up to its size", _SALVAGE),
    _Class("log_bad_crc", _D, "A body is not the one that was stored: bits were lost on the disk, in memory or in "
                 "copying", "see to the disk; " + _SALVAGE),
    _Class("log_bad_topic", _D, "A record's topic is not text, or no name of a folder, or its queue is below 0: "
                 "it was changed, which no checksum covers, and no queue has the record",
                 "replay it from the archive, by its business id"),
    _Class("log_bad_filler", _D, "The filler at a segment's end does not reach the end", _SALVAGE),
    _Class("log_hole", _D, "Zeros with records behind them: pages that a crash kept from the disk", _SALVAGE),
    _Class("log_cut", _D, "The file ends within a record", "copy the whole segment from its source or a slave"),
    _Class("log_missing_segment", _D, "A segment between two others is not there",
                 "bring it back from a backup or a slave: a broker does not start without it"),
    _Class("log_file_size", _D, "A segment has not the size of the others, and a broker refuses to load it",
                 "copy it again where it was cut in copying; " + _SALVAGE),
    _Class("log_stray_file", _R, "A file in the folder of segments has no segment's name, and a broker does not "
                 "start with it", "move it elsewhere"),
    _Class("log_torn_tail", _I, "The broker crashed within a write, or is writing now", _RESTART),
    _Class("log_torn_clean", _D, "The log ends in something that is no record, although its broker stopped in "
                 "peace: the last write was lost or overwritten later", _SALVAGE),
    _Class("log_stale_records", _D, "Records behind a damage repeat numbers that others have: they are older than "
                 "what was written over them", "do not salvage them; a broker cuts the log before the damage"),
    _Class("log_lost_messages", _D, "Numbers of a queue are not in the log: their records were damaged or are gone",
                 "replay them from the archive or from their producer"),
    _Class("log_wrong_number", _R, "A record's number in its queue was changed: no checksum covers it, and its "
                 "entry says otherwise", "'commitlake rebuild' would leave it out: archive it first"),
    _Class("log_repeated_number", _D, "Two records have the same number in one queue: only one can be consumed",
                 "look for a second broker on the same store; replay the other by its offset"),
    _Class("log_number_back", _D, "The numbers of a queue go back: its files were lost while the log stayed",
                 _REBUILD),
    _Class("log_queue_restarted", _I, "The numbers of a queue begin again at 0: its topic was deleted and made anew",
                 "nothing: what was stored before is reached by its offset only"),
    _Class("log_received_late", _I, "A message was received after it was stored: the broker's clock was set back in "
                 "between, or the record's times were changed, which no checksum covers",
                 "look-ups by time may miss it: widen them"),
    _Class("log_time_back", _I, "Store times go back: the broker's clock was set back",
                 "look-ups by time may miss what was stored around it: widen them"),
    # Queues: RocketMQ's ConsumeQueues, JMQ's queue files.
    _Class("queue_missing", _R, "A queue that has messages in the log has no files", _REBUILD),
    _Class("queue_deleted", _I, "A topic was deleted: topics.json does not have it, and its messages are in the log "
                 "only", "nothing; 'commitlake rebuild' would make its queues and the topic again"),
    _Class("queue_missing_file", _R, "A file between two others, or before the first, is gone while the log still "
                 "has its messages", _REBUILD),
    _Class("queue_missing_entry", _R, "A record's entry is empty: the broker skips it, or ends the queue there",
                 _REBUILD),
    _Class("queue_invalid_entry", _R, "An entry has a negative offset or no size, or in a JMQ store not its CRC: a "
                 "broker ends the queue there", _REBUILD),
    _Class("queue_wrong_offset", _R, "An entry leads to another place than its record", _REBUILD),
    _Class("queue_wrong_size", _R, "An entry has another size than its record", _REBUILD),
    _Class("queue_wrong_tags", _R, "An entry's code is not that of its record's TAGS, or not its delivery time: "
                 "filters by tag, or a delay, go wrong", _REBUILD),
    _Class("queue_other_delay", _I, "A delivery time is a whole number of seconds after its record was stored, but not "
                 "by the delay of its level: the broker has, or had, another messageDelayLevel than the one compared",
                 _DELAYS),
    _Class("delay_level_not_default", _I, "The schedule queues show that the broker has its own messageDelayLevel",
                 _DELAYS),
    _Class("queue_dangling_entry", _R, "An entry leads to a place where the log has no record of its number",
                 _REBUILD),
    _Class("queue_beyond_log", _R, "Entries lead behind the log's end: the log lost its end in a crash",
                 "nothing: a broker cuts them when it starts; the messages are lost"),
    _Class("queue_file_size", _R, "A queue's file has not the size of the others, and a broker refuses it",
                 _REBUILD),
    _Class("queue_file_name", _R, "A file in a queue's folder has a name that no file of the queue can have, and a "
                 "broker does not start with it, or loses its way", _REBUILD),
    _Class("queue_wrong_kind", _R, "A topic has BatchConsumeQueues where topics.json does not say BatchCQ, or "
                 "ConsumeQueues where it does: a broker does not start on the store",
                 "'commitlake rebuild' makes the queues of the kind that topics.json says"),
    _Class("queue_wrong_batch", _R, "An entry of a BatchConsumeQueue names other numbers than its record's, another "
                 "count of messages or another time", _REBUILD),
    _Class("queue_not_compared", _I, "A queue is in RocksDB: its records were read, but not compared with its entries",
                 "nothing; what else is said of the store holds"),
    _Class("queue_not_dispatched", _I, "The newest records have no entries yet", _RESTART),
    # IndexFiles.
    _Class("index_absent", _I, "There is no IndexFile: look-ups by key find nothing",
                 "'commitlake rebuild' makes them, unless the broker is set to have none"),
    _Class("index_file_size", _R, "An IndexFile's size is not one that slots and entries add up to", _REBUILD),
    _Class("index_header_count", _R, "The header counts other entries than the file has", _REBUILD),
    _Class("index_header_slots", _R, "The header counts other used slots than the file has", _REBUILD),
    _Class("index_header_span", _R, "The header's first or last record is not that of the entries", _REBUILD),
    _Class("index_empty_entry", _R, "An entry is empty although others follow: a page was lost", _REBUILD),
    _Class("index_bad_slot", _R, "A slot leads to no entry: its chain is lost", _REBUILD),
    _Class("index_chain_loop", _R, "An entry leads to itself or to a newer one: look-ups go in circles", _REBUILD),
    _Class("index_wrong_chain", _R, "An entry is in the chain of another slot: look-ups miss what is behind it",
                 _REBUILD),
    _Class("index_unreachable", _R, "No slot and no entry leads to an entry: look-ups do not find it", _REBUILD),
    _Class("index_disorder", _R, "Entries do not follow the log", _REBUILD),
    _Class("index_overlap", _R, "Two IndexFiles are about the same part of the log", _REBUILD),
    _Class("index_missing_entry", _R, "A record's key is not in the index: look-ups miss it", _REBUILD),
    _Class("index_missing_range", _R, "The IndexFiles begin behind the log's oldest records with keys", _REBUILD),
    _Class("index_wrong_hash", _R, "An entry has a hash that none of its record's keys has", _REBUILD),
    _Class("index_repeated_entry", _I, "A key of a record is entered twice: a broker that had crashed entered the last "
                 "record of an IndexFile again", "nothing: look-ups may find the message twice"),
    _Class("index_wrong_time", _R, "An entry's time is not its record's: look-ups by time miss it", _REBUILD),
    _Class("index_dangling_entry", _R, "An entry leads to a place where no record begins", _REBUILD),
    _Class("index_beyond_log", _R, "Entries lead behind the log's end: the log lost its end in a crash",
                 "nothing: after a crash a broker makes the newest IndexFiles again"),
    _Class("index_not_dispatched", _I, "The newest records are not in the index yet", _RESTART),
    # Small files.
    _Class("checkpoint_missing", _R, "There is no checkpoint: after a crash the broker reads the whole log again",
                 _RESTART),
    _Class("checkpoint_unreadable", _R, "The checkpoint is shorter than its fields, or has not its CRC",
                 "delete it: a broker makes it"),
    _Class("checkpoint_disagrees", _R, "The checkpoint of a JMQ store tells another last record, or another number of "
                 "entries, than there is: the broker reads the whole journal when it starts", _RESTART),
    _Class("checkpoint_ahead", _D, "The checkpoint knows of newer messages than the log has: the log's end is lost",
                 "bring the newest segment back; without it a broker goes on from what is there"),
    _Class("abort_present", _I, "The broker did not stop in peace", _RESTART),
    _Class("offsets_unreadable", _R, "A file of offsets is not the JSON that a broker writes",
                 "put its .bak in its place: without either, groups begin anew"),
    _Class("offset_beyond_queue", _R, "A group's offset is behind the queue's end: it consumes nothing until the "
                 "queue has grown that far", "reset the group's offset (mqadmin resetOffsetByTime)"),
    _Class("offset_invalid", _R, "A group's offset is negative", "reset the group's offset"),
    _Class("offset_below_queue", _I, "A group has not consumed what was deleted by its age",
                 "replay it from the archive if it is wanted"),
    _Class("offset_without_queue", _I, "A group has an offset in a queue that is not there",
                 "nothing, unless the queue should be there"),
    _Class("delay_offset_beyond_queue", _D, "A delay level's offset is behind its queue's end: delayed messages are "
                 "not delivered until the queue has grown that far", "stop the broker and mend delayOffset.json"),
    # The lake.
    _Class("lake_missing", _D, "Messages that the store has, and that count as archived, are not in the lake",
                 "archive the store anew under another name before the broker deletes it"),
    _Class("lake_extra", _D, "The lake has messages that the store has not where it should",
                 "see what else is reported of the log at these times"),
    _Class("lake_not_archived", _I, "The lake has nothing of what the store still has",
                 "archive it before the broker deletes it: 'commitlake guard' tells when"),
    _Class("lake_different", _D, "The lake's messages of a window are not those of the store",
                 "'commitlake audit' tells which figures differ"),
)  # fmt: skip

CLASSES = {each.code: each for each in _ALL}
"""All classes by their codes, in the order of a report."""
assert len(CLASSES) == len(_ALL)
