"""Compose and launch: the only place that reads arguments and chooses model, store, device and port."""

from __future__ import annotations

import argparse
import logging
import signal
from functools import partial

from cacheblend.commands.tiers import add_store, store_config
from cacheblend.samples import load_samples
from ui.loading import load_engine, load_recorded
from ui.serving import serve
from ui.studio import Studio


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
    add_store(parser)
    parser.add_argument(
        "--share-caches",
        action="store_true",
        help="between all visitors: whoever has the same text then answers sooner, and can tell that somebody had it",
    )
    return parser.parse_args()


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
