"""What `make` does before tests that need Kafka: `python -m tidegate.deploy.dev_kafka` makes sure that it can start.

Ends with an error in one line where it cannot: no test is ever skipped for want of Kafka.
"""

import os
import sys

from tidegate.deploy.dev_kafka.foreground import prepare
from tidegate.deploy.dev_kafka.jars import DEFAULT_VERSION
from tidegate.errors import TidegateError


def main() -> int:
    try:
        prepare(os.environ.get("TIDEGATE_TEST_KAFKA") or DEFAULT_VERSION, _say)
    except TidegateError as error:
        _say(str(error).replace("\n", " ") if error.exit_code == 2 else str(error))
        return error.exit_code
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
