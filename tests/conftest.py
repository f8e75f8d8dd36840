"""Loads the Hypothesis profiles; `--hypothesis-profile` still takes precedence."""

from logitproof.properties import profiles

profiles.load()
