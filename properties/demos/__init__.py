"""The published reports: every figure computed at the call, none stored."""
