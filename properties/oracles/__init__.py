"""Slow, exact references written from the equations; they share nothing with what they judge."""
