"""What tables of a lake have in common, whatever their format: staged rows as frames, MERGE, what a sink keeps."""
