"""Small changes of core made by a tool: how many of a sample the laws see."""
