"""A job in a scheduler: each module needs the extra of its name."""
