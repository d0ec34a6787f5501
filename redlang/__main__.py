"""`python -m redlang` is the `redlang` command."""

import sys

from redlang.cli import main

sys.exit(main())
