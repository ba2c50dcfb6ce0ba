"""A job before its loop: made, taken up, its strategy chosen, its sink owned, dropped."""
