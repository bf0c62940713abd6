"""A comparison as JSON: how runs are saved, shipped with the page and read back.

Knows the facts of trace.py and nothing else. Arrays are zlib-compressed base64, so a file is text and holds no code.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from cacheblend.loading import LoadOrder, Place
from cacheblend.trace import (
    Comparison,
    Environment,
    Fidelity,
    Inspection,
    Lane,
    Loading,
    Mode,
    Reply,
    Segment,
    SegmentKind,
    Span,
    StoredAttention,
    Trace,
)

FORMAT = "cacheblend-comparison/1"


def to_json(comparison: Comparison) -> str:
    """Serialise; live attention maps must have been stored (pooled) first, else ValueError."""
    inspection = comparison.inspection
    if inspection is not None and not isinstance(inspection.attention, StoredAttention):
        raise ValueError("store the attention maps before writing a comparison to JSON")
    return json.dumps({"format": FORMAT, **_encode(asdict(comparison))}, ensure_ascii=False)


def from_json(text: str) -> Comparison:
    """Read what `to_json` wrote; ValueError says what is wrong with anything else."""
    try:
        raw = json.loads(text)
        if raw.pop("format") != FORMAT:
            raise ValueError(f"not a {FORMAT} file")
        return _comparison(raw)
    except (KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ValueError(f"not a recorded comparison: {error}") from error


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes(), 9)).decode()
        return {"dtype": str(value.dtype), "shape": list(value.shape), "zlib": data}
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    return value


def _array(raw: dict[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(raw["zlib"]))
    return np.frombuffer(data, dtype=np.dtype(raw["dtype"])).reshape(raw["shape"])


def _by_mode(raw: dict[str, Any]) -> dict[Mode, np.ndarray]:
    return {Mode(mode): _array(array) for mode, array in raw.items()}


def _trace(raw: dict[str, Any]) -> Trace:
    fidelity, loading = raw.pop("fidelity"), raw.pop("loading", None)
    return Trace(
        mode=Mode(raw.pop("mode")),
        answer_ids=tuple(raw.pop("answer_ids")),
        spans=_spans(raw.pop("spans")),
        predicted=_spans(raw.pop("predicted", [])),
        fidelity=Fidelity(**fidelity) if fidelity else None,
        loading=_loading(loading) if loading else None,
        replies=tuple(Reply(**reply) for reply in raw.pop("replies", [])),
        **raw,
    )


def _spans(raw: list[dict[str, Any]]) -> tuple[Span, ...]:
    return tuple(Span(**{**span, "lane": Lane(span["lane"])}) for span in raw)


def _loading(raw: dict[str, Any]) -> Loading:
    return Loading(
        places=tuple(Place(place) for place in raw.pop("places")),
        order=LoadOrder(raw.pop("order")),
        **raw,
    )


def _inspection(raw: dict[str, Any]) -> Inspection:
    attention = raw["attention"]
    return Inspection(
        kv_deviation=_by_mode(raw["kv_deviation"]),
        attention_deviation=_by_mode(raw["attention_deviation"]),
        selected=_array(raw["selected"]),
        attention=StoredAttention(
            layers=tuple(attention["layers"]),
            num_heads=attention["num_heads"],
            edges=_array(attention["edges"]),
            maps=_by_mode(attention["maps"]),
        ),
    )


def _comparison(raw: dict[str, Any]) -> Comparison:
    return Comparison(
        question=raw["question"],
        tokens=tuple(raw["tokens"]),
        segments=tuple(Segment(**{**s, "kind": SegmentKind(s["kind"])}) for s in raw["segments"]),
        environment=Environment(**raw["environment"]),
        traces=tuple(_trace(t) for t in raw["traces"]),
        inspection=_inspection(raw["inspection"]) if raw["inspection"] else None,
    )
