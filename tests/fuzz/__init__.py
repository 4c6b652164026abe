"""Random damage at high speed: bytes from peers and in files are changed at random, by the million.

mutation  mutated samples                  targets  users of the samples, and permitted outcomes
stores    a store with damaged files       running  runner of cases, with a limit on memory (`python -m tests.fuzz`)
hostile_messages  hostile headers and properties        whole_runs  messages through archive and all other jobs
"""
