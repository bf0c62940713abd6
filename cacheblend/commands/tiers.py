"""Arguments that say where chunk caches are kept, and the store's settings that they make. Needs no torch."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from cacheblend.folders import cache_directory
from cacheblend.loading import LOSSLESS, StoreConfig

GB = 10**9  # as the page counts


def add_store(parser: argparse.ArgumentParser) -> None:
    """Where chunk caches are kept."""
    group = parser.add_argument_group("chunk caches")
    group.add_argument("--kv-cache", type=Path, metavar="DIR", help="kept in this folder (the user's cache folder)")
    group.add_argument("--kv-cache-size", type=gigabytes, default=16 * GB, metavar="GB", help="on disk, at most (16)")
    group.add_argument("--no-disk", action="store_true", help="keep nothing on disk")
    group.add_argument("--memory", type=gigabytes, default=4 * GB, metavar="GB", help="in memory, at most (4)")
    group.add_argument("--remote", metavar="URL", help="a Redis or Valkey behind the disk: redis://host:port/0")
    group.add_argument("--codec", default=LOSSLESS, help="what they are encoded with on disk and remotely")


def gigabytes(text: str) -> int:
    """Bytes from a number of GB."""
    number = float(text)
    if not math.isfinite(number) or round(number * GB) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no size: give a number of GB above 0")
    return round(number * GB)


def store_config(args: argparse.Namespace) -> StoreConfig:
    """The tiers that were asked for."""
    return StoreConfig(
        memory_bytes=args.memory,
        disk=None if args.no_disk else args.kv_cache or cache_directory() / "kv",
        disk_bytes=args.kv_cache_size,
        remote=args.remote,
        codec=args.codec,
    )
