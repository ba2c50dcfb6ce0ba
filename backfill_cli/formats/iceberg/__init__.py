"""Iceberg tables as upstream and sink see them: where one is, what its metadata says, its types as Spark's.

Metadata is read with pyiceberg, without a Spark job; rows and commits go by Spark.
"""
