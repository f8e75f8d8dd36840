"""Near-miss inputs: each a valid one with chosen faults, and the refusal that must win."""
