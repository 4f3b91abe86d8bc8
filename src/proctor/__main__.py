"""`python -m proctor` is the `proctor` command."""

import sys

from proctor.cli.main import main

sys.exit(main())
