"""Running a question again with its caches brought in another way, and the what-if figures: without a page."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cacheblend.cancel import Cancelled
from cacheblend.controller import PAPER_PROFILE, RatioReason
from cacheblend.loading import GBPS, PRESETS, Device, LoadOrder
from cacheblend.trace import Lane, Mode, Span
from tests.app.fakes import PROFILE, FakeEngine, fake_studio, indexed
from tests.synthetic import HOSTILE
from ui import asking, devices, reloaded, reloading, what_if
from ui.devices import AS_FOUND, OWN, SLOW_LINK
from ui.panes.reload import drawings
from ui.settings import Settings
from ui.studio import RECORDED

FORM = (SLOW_LINK.name, 50, "MB/s", 0.5, True, "lossless", 500, "layer-wise", 50, "run")
PRICES = [[device.name, device.price] for device in PRESETS]
WHAT_IF = (1000, 0, 5000, 15, 15, PRICES)


@pytest.fixture(autouse=True)
def no_settling(monkeypatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0)


@pytest.fixture
def studio():
    return fake_studio(FakeEngine())


@pytest.fixture
def asked(studio, tmp_path):
    """A visitor and the id of their run."""
    session = studio.sessions.open(None)
    session.collection = indexed(studio, {"ada.txt": "Ada wrote the first program. " * 20}, tmp_path)
    *_, last = asking.ask(studio, session, "Who?", Settings(ratio=0.3))
    return session, last.run_id


NAMES = ("device", "bandwidth", "unit", "latency_ms", "is_pipelined")
NAMES += ("codec", "target_ms", "order", "free_percent", "ratio")


def form(**changed):
    return reloading.parse(*(dict(zip(NAMES, FORM, strict=True)) | changed).values())


def test_the_form_is_parsed():
    assert form().loading.device == SLOW_LINK
    assert form(device=AS_FOUND).loading.device is None
    own = form(device=OWN, bandwidth=7, unit="Gbps", latency_ms=2).loading.device
    assert (own.bandwidth, own.latency_ms, own.is_emulated, own.name) == (7 * GBPS, 2, True, "7 Gbps")
    assert form(order="cake", is_pipelined=False).loading.order is LoadOrder.CAKE
    assert (form().loading.compute_share, form(order="cake").loading.compute_share) == (1, 0.5)
    assert (form().chooses_ratio, form(ratio="auto").chooses_ratio) == (False, True)
    assert (form().loading.target_ms, form(codec="target").loading.target_ms) == (None, 500)
    assert {name for _, name in devices.choices()} == {AS_FOUND, OWN, SLOW_LINK.name} | {d.name for d in PRESETS}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device": "a tape"}, "no such device"),
        ({"device": OWN, "bandwidth": 0}, "bandwidth must be"),
        ({"device": OWN, "bandwidth": math.nan}, "bandwidth must be"),
        ({"device": OWN, "bandwidth": None}, "bandwidth must be"),
        ({"device": OWN, "bandwidth": 1e300}, "bandwidth must be"),
        ({"device": OWN, "unit": "furlongs"}, "bandwidth must be"),
        ({"device": OWN, "latency_ms": -1}, "latency must lie"),
        ({"device": OWN, "latency_ms": 1e9}, "latency must lie"),
        ({"codec": "target", "target_ms": 0}, "target must be"),
        ({"codec": "target", "target_ms": None}, "target must be"),
        ({"codec": "target", "target_ms": math.nan}, "target must be"),
        ({"order": "sideways"}, "sideways"),
        ({"order": "cake", "free_percent": 0}, "free share"),
        ({"order": "cake", "free_percent": math.nan}, "free share"),
    ],
)
def test_values_outside_the_form_are_refused_in_a_sentence(changed, said):
    with pytest.raises(ValueError, match=said):
        form(**changed)


def test_the_machine_is_measured_once_and_the_result_is_kept_with_the_run(studio, asked):
    session, run_id = asked
    *steps, last = reloading.reload(studio, session.id, run_id, form())
    assert any(reloading.MEASURING in step.status for step in steps)
    assert studio.run(run_id).reloaded is last.reloaded
    trace = last.reloaded.trace
    assert trace.mode is Mode.BLEND
    assert trace.loading.device == SLOW_LINK.name
    assert trace.predicted_ttft_ms is not None
    *again, newer = reloading.reload(studio, session.id, run_id, form(is_pipelined=False))
    assert not any(reloading.MEASURING in step.status for step in again)
    assert studio.loaded.counts.calibrated == 1
    assert studio.run(run_id).reloaded is newer.reloaded
    assert studio.run(run_id).comparison.trace(Mode.FULL) is not None, "the run itself was replaced"


def test_the_runs_own_ratio_is_kept_unless_the_controller_chooses(studio, asked, monkeypatch):
    seen = []
    compare = FakeEngine.compare
    monkeypatch.setattr(FakeEngine, "compare", lambda self, *a, **k: seen.append(k) or compare(self, *a, **k))
    for ratio in ("run", "auto"):
        list(reloading.reload(studio, asked[0].id, asked[1], form(ratio=ratio)))
    assert [call["blend"].ratio for call in seen] == [0.3, "auto"]
    assert [call["modes"] for call in seen] == [(Mode.BLEND,)] * 2


def test_the_recorded_run_and_other_peoples_runs_are_refused_kindly(studio, asked):
    _, run_id = asked
    with pytest.raises(ValueError, match="recorded earlier"):
        list(reloading.reload(studio, None, RECORDED, form()))
    with pytest.raises(ValueError, match="no longer in memory"):
        list(reloading.reload(studio, studio.sessions.open(None).id, run_id, form()))
    assert "ask a question of your own" in reloading.why_not(studio.recorded)
    assert reloading.why_not(studio.run(run_id)) is None


def test_measuring_and_running_can_be_stopped(studio, asked):
    session, run_id = asked
    studio.loaded.pause_s = 0.3
    steps = reloading.reload(studio, session.id, run_id, form())
    next(steps)
    session.stop()
    with pytest.raises(Cancelled):
        list(steps)
    assert studio.run(run_id).reloaded is None
    assert studio.loaded.machine.profile is None


def test_predicted_and_measured_stand_side_by_side_with_their_error(studio, asked):
    *_, last = reloading.reload(studio, asked[0].id, asked[1], form())
    html = reloaded.render(last.reloaded, studio.run(asked[1]).comparison.trace(Mode.BLEND))
    assert "predicted first token" in html
    assert "measured first token" in html
    assert "Predicted 9 % too early." in html  # the fake takes a tenth longer: 1 - 1 / 1.1
    assert "(emulated)" in html
    assert "The same answer as before." in html
    late = replace(last.reloaded.trace, spans=tuple(_scaled(s, 0.5) for s in last.reloaded.trace.spans))
    assert "too late" in reloaded.render(replace(last.reloaded, trace=late), None)


def _scaled(span: Span, factor: float) -> Span:
    return replace(span, start_ms=factor * span.start_ms, end_ms=factor * span.end_ms)


def test_the_controller_says_what_it_would_choose_and_why_or_that_it_cannot(studio, asked):
    *_, last = reloading.reload(studio, asked[0].id, asked[1], form(device=PRESETS[0].name))
    assert last.reloaded.choice.why is RatioReason.FLOOR
    said = reloaded.controller(last.reloaded)
    assert "It would recompute 15 % here: loading hides less than quality needs" in said
    *_, last = reloading.reload(studio, asked[0].id, asked[1], form(device=AS_FOUND))
    assert last.reloaded.choice is None
    assert "cannot say: it had never seen" in reloaded.controller(last.reloaded)
    assert "Nothing was predicted" in reloaded.render(last.reloaded, None)
    *_, last = reloading.reload(studio, asked[0].id, asked[1], form(order="cake"))
    assert "Layer by layer it would recompute" in reloaded.controller(last.reloaded)


def test_cake_shows_its_fronts(studio, asked):
    words, lanes, fronts = drawings(studio.run(asked[1]))
    assert (words, lanes["visible"], fronts["visible"]) == ("", False, False)
    list(reloading.reload(studio, asked[0].id, asked[1], form(order="cake")))
    words, lanes, fronts = drawings(studio.run(asked[1]))
    assert "predicted first token" in words
    assert "50 % of the processor free (emulated)" in words
    assert "computed from the front" in words
    assert fronts["visible"]
    assert "Fronts meet" in fronts["value"].layout.title.text
    marks = {bar.name: (bar.x[0], bar.y[0]) for bar in fronts["value"].data if bar.mode == "markers"}
    assert marks["fronts met"] == pytest.approx((1.1 * marks["predicted"][0], marks["predicted"][1]))
    list(reloading.reload(studio, asked[0].id, asked[1], form()))
    words, lanes, fronts = drawings(studio.run(asked[1]))
    assert not fronts["visible"]
    assert lanes["value"].layout.shapes


def test_answers_are_text(studio, asked):
    *_, last = reloading.reload(studio, asked[0].id, asked[1], form())
    hostile = replace(last.reloaded.trace, answer=HOSTILE)
    assert "<img" not in reloaded.render(replace(last.reloaded, trace=hostile), None)


def test_waiting_for_loading_is_what_was_not_hidden(studio, asked):
    *_, last = reloading.reload(studio, asked[0].id, asked[1], form())
    html = reloaded.render(last.reloaded, None)
    waited = last.reloaded.trace.ttft_parts[Lane.LOAD]
    assert f"<dt>of that, waited for</dt><dd>{reloaded.words.duration(waited)}</dd>" in html


# What if?


def test_what_if_is_the_papers_until_this_machine_was_measured(studio):
    assert what_if.profile_of(studio, what_if.PAPER) is PAPER_PROFILE
    with pytest.raises(ValueError, match="not been measured yet"):
        what_if.profile_of(studio, what_if.HERE)
    session = studio.sessions.open(None)
    *steps, last = what_if.measure(studio, session)
    assert "Measured" in last.status
    assert any("progressbar" in step.status for step in steps)
    assert what_if.profile_of(studio, what_if.HERE) is PROFILE


def test_what_if_draws_the_papers_knee_and_marks_everything_as_predicted():
    left, right = what_if.figures(PAPER_PROFILE, what_if.parse(*WHAT_IF))
    knee = next(t for t in left.data if t.name.startswith("chosen"))
    assert knee.x[0] == pytest.approx(26.8, abs=1)  # figure 10a
    assert "predicted" in left.layout.title.text
    assert "predicted" in right.layout.title.text
    floored, _ = what_if.figures(PAPER_PROFILE, what_if.parse(1000, 0, 5000, 60, 15, PRICES))
    assert next(t for t in floored.data if t.name.startswith("chosen")).x[0] == 60


def test_prices_decide_which_device_is_chosen():
    free = [[name, 0 if name == "RAM" else 9] for name, _ in PRICES]
    _, right = what_if.figures(PAPER_PROFILE, what_if.parse(1000, 0, 5000, 15, 15, free))
    assert "RAM is the cheapest" in right.layout.title.text.replace("<br>", " ")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, 0, "bandwidth"),
        (0, None, "bandwidth"),
        (1, -1, "latency"),
        (2, 0, "context"),
        (2, 10**9, "context"),
        (2, math.inf, "context"),
        (3, 101, "floor"),
        (4, "15", "ratio"),
        (5, PRICES[1:], "price"),
        (5, [*PRICES[1:], ["RAM", -1]], "price"),
        (5, [*PRICES[1:], ["RAM", ""]], "price"),
        (5, [*PRICES[1:], []], "price"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_a_sentence(place, value, said):
    values = [*WHAT_IF]
    values[place] = value
    with pytest.raises(ValueError, match=said):
        what_if.parse(*values)


def test_own_devices_keep_their_numbers():
    assert devices.own(50, "MB/s", 1) == Device(name="50 MB/s", bandwidth=50e6, latency_ms=1)
