"""JMQ's journal for the kernel's loops: see `kernel.layouts`.

records     what stands at a position, and where a record's parts lie
columns     fields, addresses, ids; numbers: as text
properties  entries, and what of them is escaped; marks: looks at 64 bytes at once
"""
