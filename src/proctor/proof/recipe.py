"""How a leg's tree is made of base and change, so that another machine can make it again from the commits alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.proof.canary import plant
from proctor.workspace.trees import Trees

__all__ = ["follow_recipe", "recipe_of"]


def recipe_of(trees: Trees, base: str, tree: str, leg: str) -> dict[str, Any]:
    """Which paths come from the change (all others from the base), and which were broken on purpose.

    `paths` is None when the tree is no such mixture; it cannot be made again elsewhere then.
    """
    changed = [change.path for change in trees.changed(base, tree)]
    differs = [change.path for change in trees.changed(leg, tree)]
    paths = sorted(set(changed) - set(differs))
    if trees.overlay(base, tree, paths) == leg:
        return {"paths": paths, "broken": []}
    if differs and plant(trees, tree, differs) == leg:
        return {"paths": sorted(changed), "broken": sorted(differs)}
    return {"paths": None, "broken": []}


def follow_recipe(trees: Trees, base: str, tree: str, recipe: Mapping[str, Any]) -> str | None:
    """Make the tree again; None when the recipe does not say how."""
    paths, broken = recipe.get("paths"), recipe.get("broken") or []
    if not isinstance(paths, list) or not isinstance(broken, list):
        return None
    made = trees.overlay(base, tree, [str(path) for path in paths])
    return plant(trees, made, [str(path) for path in broken]) if broken else made
