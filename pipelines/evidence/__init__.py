"""Evidence: signed JSON on what archive runs, audits and erasures did, chained by hash.

documents   one document: signed, read, checked
keys        Ed25519 keys: made, and read from the environment or a file
chain       the table `evidence`: the next document, and all of them
verifying   what is wrong with a chain
facts       what a document says of an archive run
"""
