"""Places for files: S3-compatible, Azure and Google object stores, and HDFS.

storage          the interface of a place, and files that are read by ranges
adapter_choice   choice of the adapter of a URI
uris             the forms of URIs       errors      wrong names, servers that do not answer
bandwidth_limit  limit of the bandwidth  filesystem  Azure, Google and HDFS for Arrow, for reading

             S3       Azure                    Google         HDFS
             adapter  s3_storage               azure_storage  gcs_storage    hdfs_storage
             clients  s3_options, s3_clients   azure_storage  gcs_clients    hdfs_clients
             errors   s3_errors, arrow_errors  azure_storage  gcs_clients    hdfs_clients
             reading  Arrow's own              cloud_storage  cloud_storage  hdfs_files

folder_storage  the files of a lake in a folder

Code that needs boto3, obstore, google-cloud-storage or hdfs-native is in separate modules: the import takes a fifth of
a second or more, which a local lake should not need.

Credentials come only from the places where these packages look (environment, profiles, roles of machines and
containers). No option, URI or setting contains any.
"""
