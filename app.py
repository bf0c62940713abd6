"""Compose and launch: the only place that reads arguments and chooses model, store, device and port."""

from __future__ import annotations

import argparse
import logging
import math
import signal
from functools import partial
from pathlib import Path

from cacheblend.folders import cache_directory
from cacheblend.loading import StoreConfig
from cacheblend.samples import load_samples
from ui.loading import load_engine, load_recorded
from ui.serving import serve
from ui.studio import Studio

GB = 10**9  # as the page counts


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="CacheBlend Studio: three ways to prefill a prompt, side by side")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (this machine only, by default)")
    parser.add_argument("--port", type=int, default=7860)
    parser.add_argument(
        "--model", default="embedded", help="a folder or a hub name; the default comes with the package"
    )
    parser.add_argument("--embedder", default="embedded", help="a sentence-transformers folder or hub name")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 …; chosen from the hardware by default")
    parser.add_argument("--dtype", help="float32, bfloat16, float16; chosen from the hardware by default")
    store = parser.add_argument_group("chunk caches")
    store.add_argument(
        "--share-caches",
        action="store_true",
        help="between all visitors: whoever has the same text then answers sooner, and can tell that somebody had it",
    )
    store.add_argument("--kv-cache", type=Path, metavar="DIR", help="kept in this folder (the user's cache folder)")
    store.add_argument("--kv-cache-size", type=gigabytes, default=16 * GB, metavar="GB", help="on disk, at most (16)")
    store.add_argument("--no-disk", action="store_true", help="keep nothing on disk")
    store.add_argument("--memory", type=gigabytes, default=4 * GB, metavar="GB", help="in memory, at most (4)")
    store.add_argument("--remote", metavar="URL", help="a Redis or Valkey behind the disk: redis://host:port/0")
    store.add_argument("--codec", default="lossless", help="what they are encoded with on disk and remotely")
    return parser.parse_args()


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


def main() -> None:
    """Serve the page until it is stopped."""
    args = arguments()
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: what is unwritten is written
    engine = partial(load_engine, args.model, args.embedder, args.device, args.dtype, store_config(args))
    studio = Studio(engine, load_samples(), load_recorded(), args.model, shares_caches=args.share_caches)
    try:
        serve(studio, host=args.host, port=args.port)
    finally:
        studio.close()


if __name__ == "__main__":
    main()
