"""The table `topic_minutes`, counted from a log or from `messages`. Archive and audit import this package."""
