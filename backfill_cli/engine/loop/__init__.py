"""The barrier loop: the orchestrator (start reading here), an epoch, its ports, recovery, the process around."""
