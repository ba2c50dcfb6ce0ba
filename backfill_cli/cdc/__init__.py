"""What systems that deliver changes share: the net change of each key."""
