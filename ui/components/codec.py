"""Matrices as one byte a cell, in base64: what the widgets' canvases draw.

Code 0 is "nothing here" (NaN); 1…255 hold the square root of value / top, so that small values keep their steps. Signed
values sit around 128. The browser's half of this is static/codes.js.
"""

from __future__ import annotations

import base64

import numpy as np


def encode(values: np.ndarray, top: float) -> str:
    """Quantise non-negative values against `top`; what exceeds it is clipped."""
    share = np.clip(np.nan_to_num(values) / top, 0, 1) if top > 0 else np.zeros_like(values)
    return _base64(np.where(np.isfinite(values), 1 + np.round(254 * np.sqrt(share)), 0))


def encode_signed(values: np.ndarray, top: float) -> str:
    """Quantise signed values against ±top; what exceeds it is clipped."""
    share = np.clip(np.nan_to_num(values) / top, -1, 1) if top > 0 else np.zeros_like(values)
    return _base64(np.where(np.isfinite(values), 128 + np.round(127 * np.sign(share) * np.sqrt(np.abs(share))), 0))


def top_of(*arrays: np.ndarray, share: float = 1.0) -> float:
    """The magnitude that this share of all values above 0 stays under: one scale for panels that are compared.

    share below 1 keeps a few outliers, such as the first token's attention sink, from leaving all else dark; what
    exceeds the scale is drawn at its end and read as "≥". 0 for nothing.
    """
    sizes = [np.abs(a[np.isfinite(a) & (a != 0)]) for a in arrays]
    found = np.concatenate(sizes) if sizes else np.empty(0)
    return float(np.quantile(found, share)) if found.size else 0.0


def _base64(codes: np.ndarray) -> str:
    return base64.b64encode(codes.astype(np.uint8).tobytes()).decode()
