"""S3-compatible object stores: Amazon's, and any server that speaks its protocol.

uris         s3://bucket/prefix, taken apart                clients     boto3's, kept by process
options      which server, for workers                      access      the same server for Arrow and Delta
finding      which server, from options and environment     spark       the same server for Spark
upload       an object that is written                      troubles    what an error of boto3 means
errors       a wrong URI or endpoint

What needs boto3 is in modules of its own: it takes a fifth of a second to import, which a local lake need not wait for.

Credentials come from where boto3 looks for them (environment, profiles, roles of machines and containers) and from
nowhere else: no option, no URI and no setting holds one.
"""
