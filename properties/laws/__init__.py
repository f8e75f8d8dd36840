"""Relations that must hold over any implementation."""
