"""``python -m jobboard.cli``: the command where its script is not on the path."""

import sys

from jobboard.cli import main

sys.exit(main())
