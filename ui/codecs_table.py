"""What each codec makes of chunk KV, as measured earlier, as a table in HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ui import words
from ui.measured import load as read_measured

MEASURED = Path(__file__).parent.parent / "assets" / "recorded" / "codecs.json"
COLUMNS = {
    "size_ratio": ("smaller", "times smaller than 16 bits a number", "{:.1f} ×"),
    "encode_ms": ("encode", "milliseconds for 512 tokens", "{:.0f} ms"),
    "decode_ms": ("decode", "milliseconds for 512 tokens", "{:.0f} ms"),
    "key_error": ("K error", "relative L2 error of keys", "{:.2%}"),
    "value_error": ("V error", "relative L2 error of values", "{:.2%}"),
    "kl": ("KL, prefix", "of the next token behind an exact prefix: the codec’s error alone, nats", "{:.4f}"),
    "kl_float32": ("KL, float32", "the same in float32, where rounding hides nothing of it", "{:.5f}"),
    "excess_kl_reuse": ("KL added, reuse", "to full recompute along its answer, beyond lossless, nats", "{:+.4f}"),
    "excess_kl_blend": ("KL added, blend", "to full recompute along its answer, beyond lossless, nats", "{:+.4f}"),
}


def load(path: Path = MEASURED) -> dict[str, Any] | None:
    """Read what `benchmarks.codecs` wrote; None if it was not shipped."""
    return read_measured(path)


def render(measured: dict[str, Any] | None) -> str:
    """Return the table and where it was measured; nothing without measurements."""
    if measured is None:
        return ""
    head = "".join(f'<th scope="col" title="{meaning}">{title}</th>' for title, meaning, _ in COLUMNS.values())
    rows = "".join(_row(row) for row in measured["rows"] if not row["is_variant"])
    return (
        '<section class="codecs"><h2 class="section">Codecs, measured earlier</h2>'
        '<div class="measured" tabindex="0" role="region" aria-label="Codecs">'
        f'<table><thead><tr><th scope="col">codec</th>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="quiet">{_origin(measured)}</p></section>'
    )


def _row(row: dict[str, Any]) -> str:
    cells = "".join(
        f"<td>{form.format(row[name]).replace('-', '−') if name in row else '–'}</td>"
        for name, (_, _, form) in COLUMNS.items()
    )
    return f'<tr><th scope="row">{words.text(row["codec"])}</th>{cells}</tr>'


def _origin(measured: dict[str, Any]) -> str:
    env = measured["environment"]
    where = f"{env['model']} · {env['device']} · {env['dtype']} · {env['recorded_at'][:10]}"
    return words.text(f"Recorded, not from your run: {where}. Command: {measured['command']}")
