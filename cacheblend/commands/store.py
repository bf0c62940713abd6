"""`python -m cacheblend store stats | verify | clear | warm FILE…`: look after the chunk caches.

Only `warm` loads a model. Memory is empty when a process starts, so it is not shown.
"""

from __future__ import annotations

import argparse
import datetime
from collections import Counter
from pathlib import Path

from cacheblend.commands import options, tiers
from cacheblend.commands.options import say
from cacheblend.loading import Place
from cacheblend.store import DiskTier, Health, Tier, open_store
from cacheblend.store.remote import UNBOUNDED

GB = 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what `store` takes."""
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, action, what in (
        ("stats", _stats, "what is kept where"),
        ("verify", _verify, "read everything on disk, and remove what is damaged"),
        ("clear", _clear, "drop every entry"),
        ("warm", _warm, "index files and precompute their chunk caches"),
    ):
        verb = verbs.add_parser(name, help=what)
        verb.set_defaults(act=action)
        tiers.add_store(verb)
        if name == "warm":
            verb.add_argument("files", nargs="+", type=Path, metavar="FILE")
            options.add_collection(verb)
            options.add_model(verb)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    return int(args.act(args))


def _stats(args: argparse.Namespace) -> int:
    for tier in _lasting(args):
        used = [entry.used_at for entry in tier.entries()]
        last = f", last used {_when(max(used))}" if used else ""
        bound = "GB, no bound" if tier.capacity == UNBOUNDED else f"of {tier.capacity / GB:.1f} GB"
        print(f"{tier.place}: {len(tier):,} chunks, {tier.nbytes / GB:.3f} {bound}{last}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    found: Counter[Health] = Counter()
    for tier in _lasting(args):
        if isinstance(tier, DiskTier):
            for finding in tier.verify():
                found[finding.health] += 1
                if finding.health is not Health.GOOD:
                    print(f"{finding.name}: {finding.health}, {finding.why}")
    print(", ".join(f"{found[health]:,} {health}" for health in Health))
    return 1 if found[Health.DAMAGED] else 0


def _clear(args: argparse.Namespace) -> int:
    for tier in _lasting(args):
        dropped, nbytes = len(tier), tier.nbytes
        tier.clear()
        print(f"{tier.place}: {dropped:,} chunks dropped, {nbytes / GB:.3f} GB")
    return 0


def _warm(args: argparse.Namespace) -> int:
    with options.engine(args) as engine:
        chunks = options.collection(engine, args).chunks
        done = engine.precompute(chunks, progress=lambda done, total: say(f"{done} of {total} chunks"))
    print(f"{len(chunks):,} chunks: {done.prefilled:,} prefilled (with the prompt's prefix), the others were there")
    if done.skipped:
        print(f"{done.skipped:,} did not fit into the store: raise --memory or --kv-cache-size")
    return 1 if done.skipped else 0


def _lasting(args: argparse.Namespace) -> list[Tier]:
    """The tiers that outlive a process; ValueError if none was asked for."""
    opened = open_store(tiers.store_config(args)).tiers
    lasting = [tier for tier in opened if tier.place in (Place.DISK, Place.REMOTE)]
    if not lasting:
        raise ValueError("--no-disk without --remote leaves nothing to look after.")
    return lasting


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")
