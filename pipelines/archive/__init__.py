"""What the tasks of an archive run do: from a range of a log to packs of bodies and data files of `messages`."""
