"""A prompt run again, in words and bars as HTML: predicted, measured, and what the controller says to it."""

from __future__ import annotations

from cacheblend.loading import LoadOrder
from cacheblend.policies import is_hkvd
from cacheblend.trace import Lane, Loading, Trace
from ui import words
from ui.sessions import Reloaded

HKVD_ALONE = "the controller knows HKVD alone, and these tokens were chosen otherwise."
ORDERS = {LoadOrder.LAYERWISE: "layer by layer", LoadOrder.CAKE: "Cake: from both ends"}


def render(reloaded: Reloaded, before: Trace | None) -> str:
    """Return the result; before: blend's run of the same prompt on screen, None if there was none."""
    trace, facts = reloaded.trace, reloaded.trace.loading
    if facts is None:
        return ""
    return (
        f'<div class="reloaded"><h3>{words.text(how(facts) + _busy(reloaded))}</h3>'
        f"{_pair(trace, facts)}{_facts(trace, facts)}"
        f'<p class="controller"><b>The controller.</b> {words.text(controller(reloaded))}</p>'
        f"{_answer(trace, before)}</div>"
    )


def how(facts: Loading) -> str:
    """How the caches came in, and whether the device was real."""
    place = " and ".join(facts.places)
    device = f"From {place} slowed down to {facts.device} (emulated)" if facts.device else f"From {place}, as found"
    ahead = ", " + ("read ahead while computing" if facts.is_pipelined else "each layer read before it is computed")
    return f"{device}, {facts.codec}, {ORDERS[facts.order]}{ahead if facts.order is LoadOrder.LAYERWISE else ''}"


def _busy(reloaded: Reloaded) -> str:
    share = reloaded.loading.compute_share
    return f", {words.share(share)} of the processor free (emulated)" if share < 1 else ""


def controller(reloaded: Reloaded) -> str:
    """What the controller would choose, and why; or why it cannot say."""
    choice = reloaded.choice
    if choice is None or reloaded.trace.loading is None:
        return f"It cannot say: {_unknown(reloaded.trace.loading)}"
    hkvd = "" if is_hkvd(reloaded.trace.policy) else "With HKVD, the one policy it knows: "
    layerwise = "Layer by layer it" if reloaded.loading.order is LoadOrder.CAKE else "It"
    return (
        f"{hkvd}{layerwise} would recompute {words.share(choice.ratio)} here: {choice.why}. "
        f"Loading hides {words.share(choice.hidden_ratio)}, quality needs {words.share(choice.floor)} (both predicted)."
    )


def _pair(trace: Trace, facts: Loading) -> str:
    """The first token as predicted and as measured, to one scale."""
    expected, came = trace.predicted_ttft_ms, trace.ttft_ms
    if expected is None:
        reason = f"Nothing was predicted: {_unknown(facts) if is_hkvd(trace.policy) else HKVD_ALONE}"
        return f'<div class="pair">{_bar("measured", came, came)}</div><p class="quiet">{reason}</p>'
    error = (expected - came) / came
    side = "late" if error > 0 else "early"
    said = "Predicted to the percent." if abs(error) < 0.005 else f"Predicted {words.share(abs(error))} too {side}."
    longest = max(expected, came)
    return (
        f'<div class="pair">{_bar("predicted", expected, longest)}{_bar("measured", came, longest)}</div>'
        f'<p class="error">{said}</p>'
    )


def _unknown(facts: Loading | None) -> str:
    """Why the controller knows nothing of a run."""
    if facts is not None and ", " in facts.codec:
        return "chunks that come in several forms are beyond it."
    return "it had never seen this place or this codec. Run again, and it can."


def _bar(kind: str, ms: float, longest: float) -> str:
    return (
        f'<div class="is-{kind}"><span>{kind} first token</span><b>{words.duration(ms)}</b>'
        f'<i style="width:{100 * ms / longest:.2f}%"></i></div>'
    )


def _facts(trace: Trace, facts: Loading) -> str:
    parts = trace.ttft_parts
    waited = sum(parts.get(lane, 0.0) for lane in (Lane.LOAD, Lane.DECOMPRESS))
    loaded = sum(s.duration_ms for s in trace.spans if s.lane in {Lane.LOAD, Lane.DECOMPRESS})
    rows = [
        ("recomputed", words.share(trace.recomputed_share)),
        ("read", words.nbytes(facts.nbytes)),
        ("loading and decompressing", words.duration(loaded)),
        ("of that, waited for", words.duration(waited)),
    ]
    if facts.met_at is not None:
        rows.append(("computed from the front", words.count(facts.met_at, "token")))
    if not trace.is_warm:
        rows.append(("cold", "some caches were computed first"))
    return '<dl class="facts">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in rows) + "</dl>"


def _answer(trace: Trace, before: Trace | None) -> str:
    said = ""
    if before is not None:
        same = trace.answer.strip() == before.answer.strip()
        said = "The same answer as before." if same else "Not word for word the answer of before."
    return f'<p class="answer">{words.text(trace.answer.strip())}</p><p class="quiet">{said}</p>'
