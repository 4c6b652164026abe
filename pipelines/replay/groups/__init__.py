"""Consumer groups and replays: which messages a group has consumed, before a replay and after it.

not_consumed  messages that a group has not consumed, by its offsets at a time
consumed      number of chosen messages that groups have consumed
outcomes      state of a replay's messages in a group: consumed, dead or waiting
undo          offsets that move groups past the messages that a replay sent
"""
