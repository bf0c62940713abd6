"""`python -m cacheblend`."""

from cacheblend.cli import main

raise SystemExit(main())
