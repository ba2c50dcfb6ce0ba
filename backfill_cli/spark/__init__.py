"""Spark itself: session, Java, class archive, tasks of Arrow batches, names, failures. Knows nothing of jobs."""
