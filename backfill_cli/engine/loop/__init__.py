"""The barrier loop: orchestrator (start reading here), one epoch, its ports, recovery, the process around it."""
