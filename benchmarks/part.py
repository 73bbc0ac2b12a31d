"""One part in its own process: `python -m benchmarks.part MODULE FUNCTION OPTIONS` prints its figures."""

import json
import sys
from importlib import import_module


def main() -> None:
    module, function, options = sys.argv[1:]
    print(json.dumps(getattr(import_module(module), function)(**json.loads(options))))


if __name__ == "__main__":
    main()
