"""`logitproof verify` and `logitproof replay`: the laws on any decoder, and one case again."""
