"""Consumer groups and replays: which messages a group has consumed, before a replay and after it.

not_consumed_messages  messages that a group has not consumed, by its offsets at a time
consumed_counts        number of chosen messages that groups have consumed
outcomes               state of a replay's messages in a group: consumed, dead or waiting
undo_offsets           offsets that move groups past the messages that a replay sent
"""
