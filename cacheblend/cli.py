"""The command line: `python -m cacheblend COMMAND`. A command is a file in commands/ and one entry here."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from cacheblend.commands import ask, eval, experiment, plan, store

COMMANDS = {
    "ask": (ask, "ask a question about files, in several modes"),
    "eval": (eval, "answer a set of questions in several settings, and compare"),
    "experiment": (experiment, "measure the paper's figures, and ours, on your own questions"),
    "plan": (plan, "choose the ratio for a device, and the device for a ratio"),
    "store": (store, "look after the chunk caches on disk and elsewhere"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status. What the user can mend is one sentence on stderr and status 2."""
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        return int(args.run(args))
    except (ValueError, OSError) as error:
        print(f"cacheblend: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cacheblend", description="Fuse the KV caches of retrieved chunks.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, what) in COMMANDS.items():
        command = commands.add_parser(name, help=what)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
