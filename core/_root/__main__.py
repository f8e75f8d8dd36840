"""`python -m logitproof`: the same commands as `logitproof`."""

import sys

from logitproof.properties.cli import main

if __name__ == "__main__":
    sys.exit(main())
