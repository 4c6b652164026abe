"""All classes of findings: severity, cause, and what to do.

Severities follow from what is lost. DAMAGE: messages are lost, or about to be. REPAIRABLE: the log has the messages,
but an index of them is wrong, and can be rebuilt from the log. INFO: nothing is wrong, but it may explain a problem.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from commitlake.schemas.finding_advice import Advice


class Severity(StrEnum):
    """Severity of a finding, the worst first."""

    DAMAGE = "damage"
    REPAIRABLE = "repairable"
    INFO = "info"


class FindingClass(NamedTuple):
    """Class of findings, with its severity, cause and recommended action.

    Attributes:
        code: the stable name, for programs.
        severity: how bad a finding of the class is.
        cause: the cause, in a sentence.
        action: what to do. Its places are `store`; `into`, the options that say where `rebuild` writes; `salvaged`, a
            folder for a clean log; `lake`; and `named`, the option that gives the store's name in the lake.
        action_without_salvage: what to do where no clean log can be written, if that is something else.
    """

    code: str
    severity: Severity
    cause: str
    action: Advice
    action_without_salvage: Advice | None = None


_ARCHIVE = "archive --store {store} {named} --lake {lake}"
_MAKE = "rebuild {store} {into}"
_SALVAGE = Advice(
    "archive the intact messages now: {}. {} writes a log that a broker reads to its end",
    (_ARCHIVE, "rebuild {store} --salvage --out {salvaged}"),
)
_SKIP = Advice(
    "archive the intact messages now: {}. JMQ's broker skips what it cannot read; for BoltMQ's, no clean log can be "
    "written",
    (_ARCHIVE,),
)
_REBUILD = Advice("{} makes it from the log; so does a broker that starts without it", (_MAKE,))
_RESTART = Advice("nothing: a broker repairs it when it starts")
_BEYOND = Advice(
    "in a copy, copy the log again after the queues, or use 'commitlake ship'; on a broker's machine, compare with "
    "storePathCommitLog in broker.conf. Only if the broker has no more segments, the messages are lost, and it removes "
    "the entries when it starts"
)
_DELAYS = Advice("nothing; pass the broker's settings to verify and rebuild with --broker-conf")
_D, _R, _I = Severity.DAMAGE, Severity.REPAIRABLE, Severity.INFO


def _Class(code: str, severity: Severity, cause: str, action: str | Advice) -> FindingClass:  # noqa: N802 (as a class)
    return FindingClass(code, severity, cause, Advice(action) if isinstance(action, str) else action)


def _Torn(code: str, cause: str, step_before: str = "") -> FindingClass:  # noqa: N802 (as a class)
    """Return a class of findings for damage after which a broker may not read the log any further."""
    return FindingClass(code, _D, cause, _SALVAGE.with_prefix(step_before), _SKIP.with_prefix(step_before))


_ALL = (
    # The log, byte by byte.
    _Torn("log_bad_magic", "Where a record should begin, bytes were overwritten or never reached the disk"),
    _Torn("log_bad_size", "A record's size is not possible"),
    _Torn("log_bad_offset", "A record states another physical offset than its own"),
    _Torn("log_reused_file", "The file has records of another segment: it was reused or renamed",
          "look for the segment's own file in a backup; "),
    _Torn("log_bad_lengths", "The lengths of a record's parts do not add up to its size"),
    _Torn("log_bad_crc", "A body does not match its CRC: bits changed on the disk, in memory or while it was "
           "copied", "check the disk; "),
    _Class("log_bad_topic", _D, "A record's topic is not text or cannot be a folder's name, or its queue id is "
           "negative: the header, which no checksum covers, was changed, and no queue has the record",
           "replay it from the archive, by its business id"),
    _Torn("log_bad_filler", "The filler at a segment's end does not reach the end"),
    _Torn("log_hole", "Zeros with records after them: pages that did not reach the disk before a crash"),
    _Class("log_cut", _D, "The file ends within a record", "copy the whole segment from its source or a slave"),
    _Class("log_missing_segment", _D, "A segment between two others is missing",
           "restore it from a backup or a slave: a broker does not start without it"),
    _Torn("log_file_size", "A segment does not have the size of the others, and a broker refuses to load it",
          "copy it again where it was cut in copying; "),
    _Class("log_stray_file", _R, "A file in the folder of segments does not have a segment's name, and a broker does "
           "not start with it",
           "move it elsewhere"),
    _Class("log_torn_tail", _I, "The broker crashed during a write, or is writing now", _RESTART),
    _Class("log_elsewhere", _D, "Segments of the log are in another folder, which is not read: only a settings file "
           "within the store names it, or it is DLedger's, and the plain log has the same offsets",
           Advice("do not rebuild this store: the queues have the messages of the other folder, too. {} pulls all "
                  "messages from the running broker", ("archive --from-broker {name_server} --lake {lake}",))),
    _Class("newer_elsewhere", _I, "Queues, indexes or checkpoint know messages after the end of the log that is read: "
           "they are in the other folder of the log",
           "nothing"),
    _Class("log_not_copied", _I, "The store is a copy without the newest record: 'commitlake ship' copies it when it "
           "has not changed for some seconds",
           "nothing; if it stays so, the store's log has lost its end: verify the store itself"),
    _Torn("log_torn_clean", "The log does not end with a record, although its broker was shut down cleanly: the "
           "last write was lost or overwritten later"),
    _Class("log_stale_records", _D, "Records after a damaged range repeat queue offsets of others: they are older "
           "than what was written over them",
           "do not salvage them; a broker truncates the log before the damage"),
    _Class("log_lost_messages", _D, "Queue offsets are missing in the log: their records were damaged or deleted",
           "replay them from the archive or from their producer"),
    _Class("log_wrong_number", _R, "A record's queue offset was changed: no checksum covers it, and its entry has "
           "another",
           Advice("archive it first: {}. A rebuild would leave it out", (_ARCHIVE,))),
    _Class("log_repeated_number", _D, "Two records have the same queue offset in one queue: only one can be consumed",
           "look for a second broker on the same store; replay the other by its offset"),
    _Class("log_number_back", _D, "Queue offsets decrease: the queue's files were lost, but not the log", _REBUILD),
    _Class("log_queue_restarted", _I, "Queue offsets begin again at 0: the topic was deleted and created again",
           "nothing: earlier messages can be found by physical offset only"),
    _Class("log_received_late", _I, "A message was received after it was stored: the broker's clock was set back, or "
           "the record's times, which no checksum covers, were changed",
           "look-ups by time may miss it: use a wider range"),
    _Class("log_time_back", _I, "Store times decrease: the broker's clock was set back",
           "look-ups by time may miss messages of that time: use a wider range"),
    # Queues: RocketMQ's ConsumeQueues, JMQ's queue files.
    _Class("queue_missing", _R, "A queue that has messages in the log has no files", _REBUILD),
    _Class("queue_deleted", _I, "A topic was deleted, and perhaps created again without a message in this queue: its "
           "messages are only in the log",
           "nothing; a rebuild would create its queues and the topic again"),
    _Class("queue_missing_file", _R, "A file between two others, or before the first, is missing, but the log still "
           "has its messages",
           _REBUILD),
    _Class("queue_missing_entry", _R, "A record's entry is empty: the broker skips the record, or ends the queue there",
           _REBUILD),
    _Class("queue_invalid_entry", _R, "An entry has a negative offset or no size, or in a JMQ store a wrong CRC: a "
           "broker ends the queue there",
           _REBUILD),
    _Class("queue_wrong_offset", _R, "An entry points to another place than its record", _REBUILD),
    _Class("queue_wrong_size", _R, "An entry has another size than its record", _REBUILD),
    _Class("queue_wrong_tags", _R, "An entry's code is not the hash of its record's tag, or not its delivery time: "
           "filters by tag, or delays, go wrong",
           _REBUILD),
    _Class("queue_other_delay", _I, "A delivery time is a whole number of seconds after its record was stored, but "
           "not by the delay of its level: the broker has, or had, another messageDelayLevel than the one compared",
           _DELAYS),
    _Class("delay_level_not_default", _I, "The schedule queues show that the broker does not use the default "
           "messageDelayLevel",
           _DELAYS),
    _Class("queue_dangling_entry", _R, "An entry points to a place where the log has no record with its queue offset",
           _REBUILD),
    _Class("queue_beyond_log", _R, "Entries point beyond the log's end: the log lost its end in a crash, or it is a "
           "copy that is older than the queues, or newer segments are in a folder that is not read",
           _BEYOND),
    _Class("queue_file_size", _R, "A queue file does not have the size of the others, and a broker refuses it",
           _REBUILD),
    _Class("queue_file_name", _R, "A file in a queue's folder has a name that no file of the queue can have: a broker "
           "does not start with it, or reads wrong entries",
           _REBUILD),
    _Class("queue_wrong_kind", _R, "A topic has BatchConsumeQueues although topics.json does not say BatchCQ, "
           "or ConsumeQueues although it does: a broker does not start on the store",
           Advice("{} makes the queues of the kind that topics.json says", (_MAKE,))),
    _Class("queue_wrong_batch", _R, "An entry of a BatchConsumeQueue has other queue offsets than its record, another "
           "count of messages or another time",
           _REBUILD),
    _Class("queue_not_compared", _I, "A queue is in RocksDB: its records were read, but not compared with its entries",
           "nothing; all other findings are valid"),
    _Class("queue_not_dispatched", _I, "The newest records have no entries yet", _RESTART),
    # IndexFiles.
    _Class("index_absent", _I, "There is no IndexFile: look-ups by key find nothing",
           Advice("{} makes them, unless the broker is configured without", (_MAKE,))),
    _Class("index_not_copied", _I, "The store is a copy without the newest IndexFile, which 'commitlake ship' does not "
           "copy: later keys were not compared",
           "nothing; a rebuild makes it in a folder"),
    _Class("index_file_size", _R, "An IndexFile's size does not fit any number of slots and entries", _REBUILD),
    _Class("index_header_count", _R, "The header's count of entries is not that of the file", _REBUILD),
    _Class("index_header_slots", _R, "The header's count of used slots is not that of the file", _REBUILD),
    _Class("index_header_span", _R, "The header's first or last record is not that of the entries", _REBUILD),
    _Class("index_empty_entry", _R, "An entry is empty although others follow: a page was lost", _REBUILD),
    _Class("index_bad_slot", _R, "A slot points to no entry: its chain is lost", _REBUILD),
    _Class("index_chain_loop", _R, "An entry points to itself or to a newer one: look-ups never end", _REBUILD),
    _Class("index_wrong_chain", _R, "An entry is in the chain of another slot: look-ups miss the entries after it",
           _REBUILD),
    _Class("index_unreachable", _R, "No slot and no entry points to an entry: look-ups do not find it", _REBUILD),
    _Class("index_disorder", _R, "Entries do not have the order of the log", _REBUILD),
    _Class("index_overlap", _R, "Two IndexFiles cover the same part of the log", _REBUILD),
    _Class("index_missing_entry", _R, "A record's key is not in the index: look-ups miss it", _REBUILD),
    _Class("index_missing_range", _R, "The IndexFiles begin after the log's oldest records with keys", _REBUILD),
    _Class("index_wrong_hash", _R, "An entry has a hash that none of its record's keys has", _REBUILD),
    _Class("index_repeated_entry", _I, "A key of a record is entered twice: a broker that had crashed entered the "
           "last record of an IndexFile again",
           "nothing: look-ups may find the message twice"),
    _Class("index_wrong_time", _R, "An entry's time is not its record's: look-ups by time miss it", _REBUILD),
    _Class("index_dangling_entry", _R, "An entry points to a place where no record begins", _REBUILD),
    _Class("index_beyond_log", _R, "Entries point beyond the log's end: see queue_beyond_log",
           "nothing: after a crash a broker makes the newest IndexFiles again"),
    _Class("index_not_dispatched", _I, "The newest records are not in the index yet", _RESTART),
    # Small files.
    _Class("checkpoint_missing", _R, "There is no checkpoint: after a crash the broker reads the whole log again",
           _RESTART),
    _Class("checkpoint_unreadable", _R, "The checkpoint is too short, or does not match its CRC",
           "delete it: a broker creates it"),
    _Class("checkpoint_disagrees", _R, "The checkpoint of a JMQ store has another last record, or another number of "
           "entries, than the store: the broker reads the whole journal when it starts",
           _RESTART),
    _Class("checkpoint_ahead", _D, "The checkpoint is newer than the log: the log's end is lost, or it was copied "
           "before the checkpoint",
           "copy the log again, or restore the newest segment; without it a broker continues with what is there"),
    _Class("abort_present", _I, "The broker was not shut down cleanly", _RESTART),
    _Class("config_from_backup", _R, "A file of offsets or filters is missing, or is not the JSON that a broker "
           "writes: a broker starts with its .bak, and so do these checks",
           "nothing: a broker writes the file again"),
    _Class("offsets_unreadable", _R, "A file of offsets is not the JSON that a broker writes, and has no .bak that is",
           "restore it from a backup: without it, groups start from the beginning"),
    _Class("offset_beyond_queue", _R, "A group's offset is beyond the queue's end: it consumes nothing until the "
           "queue has grown that far",
           "reset the group's offset (mqadmin resetOffsetByTime)"),
    _Class("offset_invalid", _R, "A group's offset is negative", "reset the group's offset"),
    _Class("offset_below_queue", _I, "A group has not consumed messages that have expired",
           "replay them from the archive if they are needed"),
    _Class("offset_without_queue", _I, "A group has an offset in a queue that does not exist",
           "nothing, unless the queue should exist"),
    _Class("delay_offset_beyond_queue", _D, "A delay level's offset is beyond its queue's end: delayed messages are "
           "not delivered until the queue has grown that far",
           "stop the broker and correct delayOffset.json"),
    # The lake.
    _Class("lake_missing", _D, "Messages of the store count as archived, but are not in the lake",
           Advice("archive the store again under another name, before the broker deletes it: {}",
                  ("archive --store {store} --broker {name} --lake {lake}",))),
    _Class("lake_extra", _D, "The lake has messages that the store should have, but has not",
           "check the findings on the log at these times"),
    _Class("lake_not_archived", _I, "The store has messages that are not archived yet",
           Advice("archive them: {}. {} shows when the broker deletes them",
                  (_ARCHIVE, "guard --store {store} {named} --lake {lake}"))),
    _Class("lake_different", _D, "In a window of time, the lake's messages differ from the store's",
           Advice("{} shows which figures differ", ("audit --lake {lake} --store {store} {named}",))),
)  # fmt: skip

CLASSES = {each.code: each for each in _ALL}
"""All classes by their codes, in the order of a report."""
assert len(CLASSES) == len(_ALL)
