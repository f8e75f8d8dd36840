"""Decoders from elsewhere: a Python object, a program, or a file of answers."""
