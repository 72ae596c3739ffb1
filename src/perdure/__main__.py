"""`python -m perdure` is `perdure`."""

import sys

from perdure.app import main

sys.exit(main())
