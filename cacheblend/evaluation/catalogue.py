"""Every experiment by name, in the order in which they are offered: what a page or a shell lists before it runs one.

Facts only; what runs is in experiments/, what is drawn in visualizations/experiments/.
"""

from __future__ import annotations

from cacheblend.evaluation.points import About

CATALOGUE: tuple[About, ...] = ()
ABOUT = {about.name: about for about in CATALOGUE}
