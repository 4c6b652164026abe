"""The table `topic_minutes`: counted by the tasks that read a log, or from `messages`. Archive and audit import it."""
