"""`python -m logitproof.properties.bench MODULE …`: another module in a process that measures.

Such a process has one thread and no setting that makes BLAS choose other code than it would.
"""

import sys

from .machine import run_pinned

if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: python -m logitproof.properties.bench MODULE …", file=sys.stderr)
        sys.exit(2)
    sys.exit(run_pinned(sys.argv[1], sys.argv[2:]))
