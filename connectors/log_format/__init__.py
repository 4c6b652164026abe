"""`Format`: the description of a broker's file format, as named parts; imports only `schemas`.

format                 `Format`, and `Formats`, the formats that stores may have
records                rules for one record                       kernel      compiled loops for many records
queues                 layouts, entries and writers of queues     indexes     data for indexes, and look-ups of keys
checkpoint_and_config  checkpoint, offsets and filters of groups  deliveries  consume logs and retry stores
files                  interfaces to the files of a store

Packages in `connectors.formats` implement it, and `connectors.reading` uses it. Neither is known here.
"""
