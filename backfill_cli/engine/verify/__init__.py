"""What the sink holds against what the upstream says."""
