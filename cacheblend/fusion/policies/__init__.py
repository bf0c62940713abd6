"""Which rows a fuse computes. One policy is one file; a new one is entered in cacheblend/policies.py."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from cacheblend.fusion.policies.base import Evidence, SelectionPolicy, SelectionView
from cacheblend.fusion.policies.every import AllRows, NoRows
from cacheblend.fusion.policies.hkvd import HKVD
from cacheblend.policies import POLICIES_TOLD, AboutPolicy
from cacheblend.trace import Selector


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy that can be asked for by name. title: for people; source: the paper, "" for controls.

    make: from a share of context tokens and a selector; a policy takes what it has a field for.
    """

    title: str
    source: str
    make: Callable[[float, Selector], SelectionPolicy]


def _maker(about: AboutPolicy) -> Callable[[float, Selector], SelectionPolicy]:
    """Import the policy's class; its fields are its parameters."""
    module, name = about.made_by.split(".")
    policy: Any = getattr(import_module(f"cacheblend.fusion.policies.{module}"), name)
    taken = {field.name for field in fields(policy)}

    def make(ratio: float, selector: Selector) -> SelectionPolicy:
        given = {"ratio": ratio, "selector": selector}
        made: SelectionPolicy = policy(**{name: value for name, value in given.items() if name in taken})
        return made

    return make


POLICIES = {about.name: Entry(about.title, about.source, _maker(about)) for about in POLICIES_TOLD}

__all__ = [
    "HKVD",
    "POLICIES",
    "AllRows",
    "Entry",
    "Evidence",
    "NoRows",
    "SelectionPolicy",
    "SelectionView",
]
