"""The command `python -m tools.upstream`."""

import sys

from tools.upstream.compare import main

sys.exit(main())
