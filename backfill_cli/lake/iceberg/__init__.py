"""Iceberg tables, for upstream and sink: where a table is, its metadata, its types in Spark.

Metadata is read with pyiceberg, without a Spark job; rows and commits go through Spark.
"""
