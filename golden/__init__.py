"""Facts that do not move."""
