"""The paper's own curves, to be drawn behind measured ones and labelled as the paper's.

Read off the drawings of the EuroSys'25 PDF (Yao et al., 10.1145/3689031.3696098), to about a thousandth of an axis:
they are not the authors' numbers.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "assets" / "paper_figures.json"
COLOUR = "rgba(128,128,128,0.55)"
DASH = "dot"


@cache
def curves(figure: str) -> Any:
    """What was read off one figure, by its name in the file (“fig16”)."""
    return json.loads(FILE.read_text(encoding="utf-8"))[figure]
