"""Turns an epoch's plan into durable files, by Spark or by the workers that read the rows."""
