"""Object stores: S3, from Amazon or any server that speaks its protocol; for stores also Azure's, Google's and HDFS.

uris         parsing of s3://bucket/prefix                  clients     boto3's clients, one per process
options      endpoint and region, for workers               access      the same server for Arrow and Delta
finding      which server, from options and environment     spark       the same server for Spark
upload       an object that is written                      troubles    explanation of boto3's errors
errors       a wrong URI or endpoint

cloud_uris   parsing of abfss://… and gs://…                cloud_filesystem  stores there for Arrow, for reading
cloud_objects interface of the requests that read           azure_objects     these requests by obstore
cloud_clients obstore's clients                             cloud_errors      explanation of obstore's errors
gcs_objects  these requests by google-cloud-storage         gcs_clients       its client
gcs_errors   explanation of its errors

hdfs_uris    parsing of hdfs://…                            hdfs_clients      hdfs-native's clients, with retries
hdfs_errors  explanation of hdfs-native's errors            hdfs_filesystem   the same for Arrow, for reading
hdfs_versions files that are replaced on a condition        range_files       what both filesystems have in common

Code that needs boto3, obstore, google-cloud-storage or hdfs-native is in separate modules: the import takes a fifth of
a second or more, which a local lake should not need.

Credentials come only from the places where these packages look (environment, profiles, roles of machines and
containers). No option, URI or setting contains any.
"""
