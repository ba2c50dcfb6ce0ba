"""An epoch's plan becomes durable files, by Spark or by the workers that read the rows."""
