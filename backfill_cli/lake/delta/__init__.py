"""Delta tables, read through their log without Spark: what upstream and sink share."""
