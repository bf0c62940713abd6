"""Which rows a fuse computes. One policy is one file; a new one is added to this list."""

from cacheblend.fusion.policies.base import SelectionPolicy, SelectionView
from cacheblend.fusion.policies.every import AllRows, NoRows
from cacheblend.fusion.policies.hkvd import HKVD

__all__ = ["HKVD", "AllRows", "NoRows", "SelectionPolicy", "SelectionView"]
