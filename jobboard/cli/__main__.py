"""``python -m jobboard.cli``, for where the script is not on the path."""

import sys

from jobboard.cli import main

sys.exit(main())
