"""Random damage at high speed: bytes from peers and in files are changed at random, million by million.

mutation  bytes that are nearly right      targets  what is tried with them, and what may come of it
stores    a store with damaged files       running  cases in turns, with a bound on memory (`python -m tests.fuzz`)
hostile_messages  what headers and properties may hold  whole_runs  messages through archive and all other jobs
"""
