"""What the widgets send the browser: true to the arrays, small, JSON-safe, and nothing for a request that is wrong."""

import base64
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cacheblend.analysis import pool_matrix
from cacheblend.trace import Comparison, Mode
from tests.synthetic import HOSTILE, synthetic_comparison
from ui.components import codec
from ui.components.attention_map import WINDOW_CELLS, attention_payload, attention_window
from ui.components.prompt import MAX_TOKEN_CHARS, prompt_payload
from ui.components.token_map import TokenQuantity, token_map_detail, token_map_payload
from ui.components.token_text import token_text_layer, token_text_payload
from ui.components.widget import answer_request


@pytest.fixture(scope="module")
def small() -> Comparison:
    return synthetic_comparison(300)


@pytest.fixture(scope="module")
def large() -> Comparison:
    return synthetic_comparison(4000, layers=30, map_size=256)


def decoded(data: str, top: float) -> np.ndarray:
    codes = np.frombuffer(base64.b64decode(data), dtype=np.uint8).astype(float)
    return np.where(codes == 0, np.nan, ((codes - 1) / 254) ** 2 * top)


def test_encoding_keeps_nan_zero_and_the_top_and_errs_by_less_than_one_step() -> None:
    values = np.array([np.nan, 0.0, 0.001, 0.3, 2.0, 5.0])
    read = decoded(codec.encode(values, 2.0), 2.0)
    assert np.isnan(read[0]) and read[1] == 0 and read[4] == 2.0 and read[5] == 2.0
    assert np.abs(np.sqrt(read[1:5] / 2) - np.sqrt(values[1:5] / 2)).max() <= 0.5 / 254 + 1e-9


def test_signed_encoding_is_symmetric_about_128() -> None:
    codes = np.frombuffer(base64.b64decode(codec.encode_signed(np.array([-1, 0, 1, np.nan]), 1.0)), np.uint8)
    assert codes.tolist() == [1, 128, 255, 0]


def test_nothing_to_scale_by_is_all_zero() -> None:
    assert decoded(codec.encode(np.zeros(3), 0.0), 0.0).tolist() == [0, 0, 0]
    assert codec.top_of() == 0.0
    assert codec.top_of(np.array([np.nan]), np.array([-3.0, 1.0])) == 3.0


@pytest.mark.parametrize("what", TokenQuantity)
def test_a_small_token_map_holds_every_token_of_every_layer(what: TokenQuantity, small: Comparison) -> None:
    payload = token_map_payload(small, what, run_id="r")
    assert payload is not None and small.inspection is not None
    assert payload["edges"] == list(range(301))
    truth = {
        TokenQuantity.KV_DEVIATION: [small.inspection.kv_deviation[m] for m in (Mode.REUSE, Mode.BLEND)],
        TokenQuantity.ATTENTION_DEVIATION: [small.inspection.attention_deviation[m] for m in (Mode.REUSE, Mode.BLEND)],
        TokenQuantity.SELECTED: [small.inspection.selected],
    }[what]
    assert len(payload["panels"]) == len(truth)
    for panel, matrix in zip(payload["panels"], truth, strict=True):
        read = decoded(panel["data"], payload["top"]).reshape(matrix.shape)
        np.testing.assert_allclose(read, np.minimum(matrix, payload["top"]), atol=payload["top"] / 200)
    beyond = np.mean([(matrix > payload["top"]).sum() for matrix in truth]) / truth[0].size
    assert beyond <= 0.011, "the scale leaves out outliers only"


@pytest.mark.parametrize("what", TokenQuantity)
def test_a_large_token_map_is_small_and_keeps_every_maximum(what: TokenQuantity, large: Comparison) -> None:
    payload = token_map_payload(large, what, run_id="r")
    assert payload is not None and large.inspection is not None
    assert len(json.dumps(payload)) < 300_000
    edges = payload["edges"]
    assert edges[0] == 0 and edges[-1] == 4000 and edges[1] > 1
    if what is TokenQuantity.KV_DEVIATION:
        matrix = large.inspection.kv_deviation[Mode.REUSE]
        read = decoded(payload["panels"][0]["data"], payload["top"]).reshape(30, -1)
        expected = np.stack([matrix[:, a:b].max(axis=1) for a, b in pairwise(edges)], axis=1)
        np.testing.assert_allclose(read, np.minimum(expected, payload["top"]), atol=payload["top"] / 200)


def test_detail_of_a_large_map_is_token_by_token_on_the_same_scale(large: Comparison) -> None:
    what = TokenQuantity.KV_DEVIATION
    payload = token_map_payload(large, what, run_id="r")
    detail = token_map_detail(large, {"what": what.value, "start": 1000, "stop": 1500})
    assert payload is not None and large.inspection is not None
    assert detail["edges"] == list(range(1000, 1501))
    read = decoded(detail["panels"][1]["data"], payload["top"]).reshape(30, 500)
    truth = np.minimum(large.inspection.kv_deviation[Mode.BLEND][:, 1000:1500], payload["top"])
    np.testing.assert_allclose(read, truth, atol=payload["top"] / 200)


def test_a_run_that_was_not_inspected_has_text_but_no_maps(small: Comparison) -> None:
    bare = replace(small, inspection=None)
    assert token_map_payload(bare, TokenQuantity.SELECTED, run_id="r") is None
    assert attention_payload(bare, run_id="r") is None
    text = token_text_payload(bare, run_id="r")
    assert text["colourings"] == [] and len(text["prompt"]["tokens"]) == 300


def test_prompt_names_segments_and_cuts_absurd_tokens(small: Comparison) -> None:
    long = replace(small, tokens=("x" * 10_000, *small.tokens[1:]))
    prompt = prompt_payload(long)
    assert len(prompt["tokens"][0]) == MAX_TOKEN_CHARS
    names = [s["name"] for s in prompt["segments"]]
    assert names == ["prefix", *(f"chunk {i}" for i in range(1, 7)), "question"]
    assert HOSTILE in prompt["tokens"]  # travels as data; the browser test shows that it stays text


def test_attention_overview_is_small_and_differences_are_exact(large: Comparison) -> None:
    payload = attention_payload(large, run_id="r")
    assert payload is not None and len(json.dumps(payload)) < 300_000
    window = payload["window"]
    size = len(window["row_edges"]) - 1
    assert size <= WINDOW_CELLS and large.inspection is not None
    maps, layer, span = large.inspection.attention, window["layer"], (0, len(large.tokens))
    cut = [maps.window(m, layer, None, rows=span, cols=span, size=size).values for m in (Mode.FULL, Mode.REUSE)]
    full, reuse = (pool_matrix(values, size)[0].ravel() for values in cut)
    shown = decoded(window["panels"]["full"], window["top"])
    np.testing.assert_allclose(shown, np.minimum(full, window["top"]), atol=window["top"] / 200)
    codes = np.frombuffer(base64.b64decode(window["differences"]["reuse"]), np.uint8).astype(float) - 128
    difference = np.sign(codes) * codes**2 / 127**2 * window["difference_top"]
    there = np.isfinite(full)
    assert 0 < there.sum() < there.size  # above the diagonal there is nothing
    widest = window["difference_top"]
    np.testing.assert_allclose(difference[there], np.clip(reuse - full, -widest, widest)[there], atol=widest / 50)


def test_an_attention_window_covers_what_was_asked(small: Comparison) -> None:
    window = attention_window(small, {"layer": 10, "head": 1, "rows": [100, 150], "cols": [20, 60]})
    assert window["row_edges"][0] <= 100 and window["row_edges"][-1] >= 150
    assert window["col_edges"][0] <= 20 and window["col_edges"][-1] >= 60
    assert (window["layer"], window["head"]) == (10, 1)


BAD_WINDOWS: list[dict[str, Any]] = [
    {"layer": 11},
    {"layer": "10"},
    {"layer": True},
    {"layer": None},
    {"head": 2},
    {"head": -1},
    {"head": 0.5},
    {"rows": [5, 5]},
    {"rows": [9, 5]},
    {"rows": [0, 301]},
    {"rows": [0, 1e9]},
    {"rows": [-1, 5]},
    {"cols": "ab"},
    {"cols": [1, 2, 3]},
    {"cols": None},
]


@pytest.mark.parametrize("bad", BAD_WINDOWS)
def test_a_wrong_attention_request_is_refused_in_words(bad: dict[str, Any], small: Comparison) -> None:
    good = {"run": "r", "layer": 10, "head": None, "rows": [0, 300], "cols": [0, 300]}
    assert "error" not in answer_request(lambda _: small, good, attention_window)
    assert "cannot be shown" in answer_request(lambda _: small, good | bad, attention_window)["error"]


@pytest.mark.parametrize(
    "bad", [{"what": "__class__"}, {"what": ["selected"]}, {"start": 300}, {"start": 5, "stop": 5}, {"stop": 301}]
)
def test_a_wrong_detail_request_is_refused_in_words(bad: dict[str, Any], small: Comparison) -> None:
    good = {"run": "r", "what": "selected", "start": 0, "stop": 300}
    assert "error" not in answer_request(lambda _: small, good, token_map_detail)
    assert "cannot be shown" in answer_request(lambda _: small, good | bad, token_map_detail)["error"]


@pytest.mark.parametrize("request_", [None, [], "r", {}, {"run": 3}, {"run": ["r"]}])
def test_a_request_without_a_run_is_refused(request_: object, small: Comparison) -> None:
    assert answer_request(lambda _: small, request_, token_text_layer) == {"error": "This request names no run."}


def test_a_forgotten_run_says_what_to_do() -> None:
    assert "run the question again" in answer_request(lambda _: None, {"run": "r"}, token_text_layer)["error"]


def test_text_values_are_one_layer_or_the_mean_of_all_but_the_first(small: Comparison) -> None:
    assert small.inspection is not None
    mean = token_text_payload(small, run_id="r")["colourings"]
    one = token_text_layer(small, {"layer": 7})["colourings"]
    assert [c["label"] for c in mean] == [c["label"] for c in one]
    assert mean[0]["top"] == mean[1]["top"]  # reuse and blend are coloured on one scale
    kv = small.inspection.kv_deviation[Mode.REUSE]
    for colouring, truth in ((mean[0], kv[1:].mean(axis=0)), (one[0], kv[7])):
        shown = np.minimum(truth, colouring["top"])
        np.testing.assert_allclose(decoded(colouring["data"], colouring["top"]), shown, atol=colouring["top"] / 200)
    with pytest.raises(ValueError, match="layer must be"):
        token_text_layer(small, {"layer": 30})


def test_large_text_is_small(large: Comparison) -> None:
    assert len(json.dumps(token_text_payload(large, run_id="r"))) < 300_000
