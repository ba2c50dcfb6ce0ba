"""A job before its loop: created, resumed, its strategy chosen, its sink owned, dropped."""
