"""Change events of databases in the forms in which connectors publish them, read as rows before and after a change.

Each format has a module that exports one `ChangeFormat`; `change_reader` lists the formats and reads bodies by them.
Nothing here knows Spark or the lake.
"""
