"""Becomes a node of Kafka after it has asked to die with its parent: `python -m ... PARENT COMMAND...`.

The request outlives exec, and it cannot be made by a Java process itself, nor safely between fork and exec.
"""

import os
import sys

from tidegate.deploy.processes import die_with_parent


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    die_with_parent(parent)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
