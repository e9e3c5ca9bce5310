"""Make ``python -m detlab`` the command line."""

import sys

from detlab.cli import main

sys.exit(main())
