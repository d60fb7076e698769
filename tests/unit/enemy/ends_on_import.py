"""A script without a guard: importing it would end the process."""

import sys

sys.exit(3)
