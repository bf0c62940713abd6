"""Peak memory of one full prefill and of one blended one, each in a process of its own.

`python -m benchmarks.memory` prints both and their difference beside one copy of the context's KV. Blend's process
holds the chunk caches in its store; that is the copy it may cost.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.ttft import RATIO, random_plan
from cacheblend.config import BlendConfig
from cacheblend.engine import Engine
from cacheblend.trace import Mode


def main() -> None:
    """Run a child for each mode; or, with --mode, be one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", type=Mode)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.mode:
        print(json.dumps(peak(args.mode)))
        return
    peaks = {mode: child(mode) for mode in (Mode.FULL, Mode.BLEND)}
    full, blend = peaks[Mode.FULL]["peak_bytes"], peaks[Mode.BLEND]["peak_bytes"]
    allowed = peaks[Mode.FULL]["context_kv_bytes"]
    result = {"full": full, "blend": blend, "context_kv": allowed, "within": blend <= full + allowed}
    print(f"peak memory: full {full / 1e6:.0f} MB, blend {blend / 1e6:.0f} MB: {(blend - full) / 1e6:+.0f} MB,")
    print(f"where one copy of the context's KV is {allowed / 1e6:.0f} MB")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


def child(mode: Mode) -> dict[str, int]:
    """The peak of one mode in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--mode", mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return result


def peak(mode: Mode) -> dict[str, int]:
    """Prefill once; return the largest resident size this process ever had."""
    engine = Engine.load(progress=lambda what: None)
    plan = random_plan(engine, chunks=6, chunk_tokens=512)
    engine.prefill_plan(plan, mode, BlendConfig(ratio=RATIO))
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_bytes": kilobytes * 1024, "context_kv_bytes": plan.context_tokens * engine.kv_bytes_per_token}


if __name__ == "__main__":
    main()
