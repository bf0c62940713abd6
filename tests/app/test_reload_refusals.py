"""What cannot be loaded again as it was asked for is refused before anything is prepared or measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheblend.config import BlendConfig
from cacheblend.loading import LoadOrder
from cacheblend.policies import PAPERS, POLICIES_TOLD, POLICY
from cacheblend.trace import Recipe
from tests.app.fakes import FakeEngine, fake_studio, indexed
from ui import asking, reloading
from ui.devices import SLOW_LINK
from ui.settings import Settings

WAITING = [about.name for about in POLICIES_TOLD if about.waits]
AT_ONCE = [about.name for about in POLICIES_TOLD if not about.waits]


@pytest.fixture(autouse=True)
def no_settling(monkeypatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0)


@pytest.fixture
def reload(tmp_path):
    """Loads one question's caches again after it was blended by some policy; returns the steps."""
    studio = fake_studio(FakeEngine())
    session = studio.sessions.open(None)
    session.collection = indexed(studio, {"ada.txt": "Ada wrote the first program. " * 20}, tmp_path)
    *_, last = asking.ask(studio, session, "Who?", Settings())

    def again(policy: str, order: LoadOrder, ratio: str, recipe: Recipe = Recipe.BARE) -> list[reloading.Step]:
        session.keep(replace(session.runs[last.run_id], blend=BlendConfig(policy=policy, recipe=recipe)))
        wish = reloading.parse(SLOW_LINK.name, 50, "MB/s", 0.5, True, "lossless", 500, order, 50, ratio)
        try:
            return list(reloading.reload(studio, session.id, last.run_id, wish))
        except ValueError:
            assert studio.loaded.num_asked == 1 and studio.loaded.counts.calibrated == 0, "nothing was run or measured"
            assert session.runs[last.run_id].reloaded is None
            raise

    return again


def test_there_are_policies_of_both_kinds():
    assert {"query", "late-query", "query-deviation", "oracle"} == set(WAITING)
    assert PAPERS in AT_ONCE


@pytest.mark.parametrize("policy", WAITING)
def test_cake_is_refused_to_a_policy_that_waits_for_all_caches(reload, policy):
    with pytest.raises(ValueError, match="must see all caches before it begins") as refused:
        reload(policy, LoadOrder.CAKE, "run")
    said = str(refused.value)
    assert POLICY[policy].title in said and "load layer by layer" in said and "CacheBlend (paper)" in said
    assert reload(policy, LoadOrder.LAYERWISE, "run")[-1].reloaded is not None, "layer by layer it goes"


@pytest.mark.parametrize("policy", AT_ONCE)
def test_cake_takes_every_other_policy(reload, policy):
    assert reload(policy, LoadOrder.CAKE, "run")[-1].reloaded.trace.loading.order is LoadOrder.CAKE


@pytest.mark.parametrize("policy", [about.name for about in POLICIES_TOLD if about.name != PAPERS])
def test_the_controller_is_refused_to_all_but_hkvd(reload, policy):
    with pytest.raises(ValueError, match="The controller knows HKVD alone") as refused:
        reload(policy, LoadOrder.LAYERWISE, "auto")
    said = str(refused.value)
    assert POLICY[policy].title in said and "keep the run's ratio" in said and "CacheBlend (paper)" in said


@pytest.mark.parametrize("recipe", [Recipe.BARE, Recipe.NEUTRAL])
@pytest.mark.parametrize("order", list(LoadOrder))
@pytest.mark.parametrize("ratio", ["run", "auto"])
def test_hkvd_goes_with_either_order_and_with_the_controller(reload, recipe, order, ratio):
    assert reload(PAPERS, order, ratio, recipe)[-1].reloaded.loading.order is order
