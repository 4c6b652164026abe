"""Evidence: signed JSON documents about archive runs, audits and erasures, chained by hash.

documents         a single document: sign, read and check it
signing_keys      Ed25519 keys: create them, and read them from the environment or a file
chain             the table `evidence`: add the next document, and read all of them
verifying         checks of a chain
archive_evidence  facts about an archive run for its document
"""
