"""The commands of `python -m cacheblend`, one a file: `add_arguments(parser)` and `run(args) -> status`."""
