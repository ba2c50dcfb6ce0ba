"""What lake tables of any format share: staged rows as frames, MERGE, the state that a sink keeps."""
