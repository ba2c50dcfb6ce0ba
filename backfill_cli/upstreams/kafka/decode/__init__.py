"""Values of records as rows or changes, each with its fault or none."""
