"""Object stores: S3, which is Amazon's and any server that speaks its protocol, and Azure's, for stores.

uris         parsing of s3://bucket/prefix                  clients     boto3's clients, one per process
options      endpoint and region, for workers               access      the same server for Arrow and Delta
finding      which server, from options and environment     spark       the same server for Spark
upload       an object that is written                      troubles    explanation of boto3's errors
errors       a wrong URI or endpoint

cloud_uris   parsing of abfss://…                           cloud_clients     obstore's clients
cloud_errors explanation of obstore's errors                cloud_filesystem  the same for Arrow, for reading

Code that needs boto3 or obstore is in separate modules: the import takes a fifth of a second, which a local lake should
not need.

Credentials come only from the places where boto3 and obstore look (environment, profiles, roles of machines and
containers). No option, URI or setting contains any.
"""
