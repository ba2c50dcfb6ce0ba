"""The live log: its cluster, its growth, and the records of ranges of offsets."""
