"""Delta tables by their log alone, without Spark: what upstream and sink share."""
