"""The laws as a test suite for somebody else's decoder: `pytest --pyargs logitproof.suite`."""
