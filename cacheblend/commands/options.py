"""Arguments that several commands share, and what they make: an engine, documents, a device."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TypeVar

from cacheblend.collection import Collection
from cacheblend.commands.tiers import store_config
from cacheblend.engine import Engine
from cacheblend.loading import GBPS, PRESETS, Device

BANDWIDTH = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>Gbps|Mbps|GB/s|MB/s)", re.IGNORECASE)
UNITS = {"gbps": GBPS, "mbps": GBPS / 1000, "gb/s": 1e9, "mb/s": 1e6}
Named = TypeVar("Named", bound=StrEnum)


def say(what: str) -> None:
    """Tell the user what is going on, beside the result."""
    print(what, file=sys.stderr)


def one_of(names: type[Named]) -> Callable[[str], Named]:
    """Read a name of a closed set; an unknown one is answered with those there are."""

    def read(text: str) -> Named:
        try:
            return names(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"“{text}” is none of {', '.join(names)}") from error

    return read


def add_several(
    parser: argparse.ArgumentParser, flag: str, names: type[Named], default: Sequence[Named], what: str
) -> None:
    """Take one or several names of a closed set; `what` tells which."""
    parser.add_argument(
        flag,
        nargs="+",
        type=one_of(names),
        default=list(default),
        metavar=flag.strip("-").removesuffix("s").upper(),
        help=f"{what}: {', '.join(names)} ({' '.join(default)})",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model, and where it runs."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", default="embedded", help="“embedded”, a folder, a .gguf file or a hub name")
    group.add_argument("--embedder", default="embedded", help="a sentence-transformers folder or hub name")
    group.add_argument("--device")
    group.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])


def add_collection(parser: argparse.ArgumentParser) -> None:
    """How documents are cut."""
    parser.add_argument("--chunk-tokens", type=int, default=512)


@contextmanager
def engine(args: argparse.Namespace) -> Iterator[Engine]:
    """Load the model and open the store; what was put is written down at the end."""
    loaded = Engine.load(
        args.model,
        device=args.device,
        dtype=args.dtype,
        embedder=args.embedder,
        store=store_config(args),
        progress=say,
    )
    try:
        yield loaded
    finally:
        loaded.store.close()


def collection(engine: Engine, args: argparse.Namespace) -> Collection:
    """Index the files and say what could not be read; ValueError if nothing could."""
    made = engine.collection(chunk_tokens=args.chunk_tokens)
    report = made.add(args.files)
    for failure in report.failures:
        say(failure)
    if not report.added:
        raise ValueError("none of the files could be read, so there is nothing to ask about.")
    return made


def device(text: str) -> Device:
    """A preset by name, or a bandwidth: “7Gbps”, “500 MB/s”."""
    preset = next((preset for preset in PRESETS if preset.name.casefold() == text.casefold()), None)
    if preset is not None:
        return preset
    match = BANDWIDTH.fullmatch(text.strip())
    if match is None or float(match["number"]) <= 0:
        names = ", ".join(f"“{preset.name}”" for preset in PRESETS)
        raise argparse.ArgumentTypeError(f"“{text}” is neither a bandwidth like 7Gbps or 500MB/s nor one of {names}")
    return Device(name=text.strip(), bandwidth=float(match["number"]) * UNITS[match["unit"].lower()])
