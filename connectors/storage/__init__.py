"""Places for files: object stores of Amazon (or any server that speaks its protocol), Azure and Google, and HDFS.

storage      the interface of a place       opening      choice of the adapter of a URI
pace         limit of the bandwidth         checksums    combination of CRC-32s
errors       wrong names, servers that do not answer

             S3                 Azure           Google          HDFS
adapter      s3_storage         azure_storage   gcs_storage     hdfs_storage, hdfs_versions
clients      clients            cloud_clients   gcs_clients     hdfs_clients
errors       s3_errors          cloud_errors    gcs_errors      hdfs_errors
URIs         uris               cloud_uris      cloud_uris      hdfs_uris
reading      Arrow's own        cloud_storage   cloud_storage   hdfs_files

filesystem   Azure, Google and HDFS for Arrow, for reading     range_files   its files
options      endpoint and region of S3, for workers            finding       which server, from options and environment
access       S3 for Delta, and a look at a place               upload        an object of S3 that is written
spark        S3 for Spark                                      writing       files of lakes, in folders and in S3
arrow_errors explanation of Arrow's and Delta's errors

Code that needs boto3, obstore, google-cloud-storage or hdfs-native is in separate modules: the import takes a fifth of
a second or more, which a local lake should not need.

Credentials come only from the places where these packages look (environment, profiles, roles of machines and
containers). No option, URI or setting contains any.
"""
