"""What a refill compares, in a process beside the runner, which applies what was found: engine/loop/refills.py."""
