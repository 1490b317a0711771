"""Monte Carlo tree search over tilings: one factor a level, from the batch tile down to the depths of the buffers.

The space's legal tilings stand in lexicographic order of their choices, so a node is a range of them: all that share
the choices made so far. Its children are the values that any of them goes on with; so every path is legal.

One iteration: *select* a path by upper confidence bounds; *expand* a node that was visited before; *evaluate* one
tiling of the new node, which the rollout policy completes; *back up* its reward along the path.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.searcher import Searcher, Study


class _Node:
    """All legal tilings with the same choices so far: rows `[first, last)`.

    Attributes
    ----------
    level
        The first level at which they differ.
    visits, total, best
        Tilings evaluated below (or on their way), the sum of their rewards, and the greatest.
    left
        Rows not yet asked for.
    """

    __slots__ = ("best", "children", "first", "last", "left", "level", "total", "visits")

    def __init__(self, first: int, last: int, level: int) -> None:
        self.first, self.last, self.level = first, last, level
        self.visits, self.total, self.best, self.left = 0, 0.0, 0.0, last - first
        self.children: list[_Node] | None = None


class _MctsStudy(Study):
    def __init__(self, space: AnySpace, seed: int, settings: "MctsSearch") -> None:
        self._choices, self._settings = space.choices, settings
        self._rng = np.random.default_rng(seed)
        self._asked = np.zeros(len(self._choices), np.bool_)
        self._root = _Node(0, len(self._choices), 0)
        self._space = space
        self._paths: dict[int, list[_Node]] = {}
        self._best: tuple[float, IntArray] | None = None
        self._scale = 0.0

    def ask(self, most: int) -> IntArray:
        """Select, expand and roll out `batch` times; a visit counts at once, so that the next goes elsewhere."""
        rows = []
        for _ in range(min(most, self._settings.batch)):
            if not self._root.left:
                break
            if self._rng.random() < self._settings.stray:
                row = self._any(self._root)
                path = self._path_to(row)
            else:
                path = self._select()
                row = self._roll_out(path[-1])
            self._asked[row] = True
            for node in path:
                node.visits += 1
                node.left -= 1
            self._paths[row] = path
            rows.append(row)
        return np.array(rows, dtype=np.int64)

    def tell(self, rows: IntArray, values: FloatArray) -> None:
        """Back up: every node of a tiling's path gets its reward."""
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            if self._best is None or value < self._best[0]:
                self._best = (value, self._choices[row].astype(np.int64))
            reward = self._reward(value)
            for node in self._paths.pop(row):
                node.total += reward
                node.best = max(node.best, reward)

    def _reward(self, value: float) -> float:
        """Reward of a value: the first finite one over it (so that it needs no bound), to a power."""
        if not np.isfinite(value):
            return 0.0
        if self._scale == 0.0:
            self._scale = value
        return float((self._scale / value) ** self._settings.reward_power)

    def _select(self) -> list[_Node]:
        """Go down from the root by upper confidence bounds; expand the last node if it has been visited before."""
        node, path = self._root, [self._root]
        while node.last - node.first > 1:
            if node.children is None:
                if node.visits < self._settings.expand_after:
                    break
                node.children = self._expand(node)
            node = self._choose(node)
            path.append(node)
        return path

    def _expand(self, node: _Node) -> list[_Node]:
        """Make a child for each value that the node's tilings go on with, at the first level where they differ."""
        first, last, level = node.first, node.last, node.level
        low, high = self._choices[first], self._choices[last - 1]
        while low[level] == high[level]:
            level += 1
        node.level = level
        column = self._choices[first:last, level]
        starts = np.flatnonzero(column[1:] != column[:-1]) + first + 1
        bounds = [first, *starts.tolist(), last]
        children = [_Node(a, b, level + 1) for a, b in pairwise(bounds)]
        for child in children:
            child.left = int((~self._asked[child.first : child.last]).sum())
        return children

    def _choose(self, node: _Node) -> _Node:
        """Return the child with the greatest upper confidence bound, of those with anything left; the first of equals.

        `(1 - w) mean + w best + C scale sqrt(ln(visits of the parent) / visits)`; a child never visited has the
        parent's mean and one visit, but every dataflow of a joint space has a try.
        """
        assert node.children is not None
        best_weight = self._settings.best_weight
        mean_weight = 1 - best_weight
        spread = self._settings.exploration * self._root.best * math.sqrt(math.log(node.visits + 1))
        unseen = node.total / max(1, node.visits) + spread
        if node is self._root and len(self._space.parts()) > 1:
            unseen = math.inf
        chosen, most = None, -1.0
        for child in node.children:
            visits = child.visits
            if child.left == 0:
                continue
            if visits:
                worth = mean_weight * child.total / visits + best_weight * child.best + spread / math.sqrt(visits)
            else:
                worth = unseen
            if worth > most:
                chosen, most = child, worth
        assert chosen is not None
        return chosen

    def _roll_out(self, node: _Node) -> int:
        """Return a row of the node not asked for before: as the best tiling known goes on, or at random."""
        if self._best is not None and self._rng.random() < self._settings.greedy_rollouts:
            row = self._like_best(node)
            if not self._asked[row]:
                return row
        return self._any(node)

    def _any(self, node: _Node) -> int:
        """Return a row of the node not asked for before, at random."""
        rows = node.last - node.first
        for _ in range(8):
            row = node.first + int(self._rng.integers(rows))
            if not self._asked[row]:
                return row
        free = np.flatnonzero(~self._asked[node.first : node.last])
        return node.first + int(free[self._rng.integers(len(free))])

    def _path_to(self, row: int) -> list[_Node]:
        """Return the nodes that there are above a row, from the root down."""
        node, path = self._root, [self._root]
        while node.children is not None:
            node = next(child for child in node.children if row < child.last)
            path.append(node)
        return path

    def _like_best(self, node: _Node) -> int:
        """Return the node's row that goes on as much as possible like the best tiling known."""
        assert self._best is not None
        wanted = self._best[1].copy()
        wanted[: node.level] = self._choices[node.first, : node.level]
        return int(self._space.nearest(wanted[None, :])[0])


@dataclass(frozen=True)
class MctsSearch(Searcher):
    """Search the tree of choices by upper confidence bounds (UCT).

    Parameters
    ----------
    exploration
        The UCB constant C, in units of the best reward.
    best_weight
        A node's worth is this share of its best reward, and the rest of its mean: only the best counts in the end.
    greedy_rollouts
        Share of rollouts that go on like the best tiling known, as far as is legal; the others are uniformly random.
    stray
        Share of iterations that try any tiling of the space: what it is worth is told to the nodes above it, so that
        choices which selection would not come to are heard of.
    expand_after
        Visits of a node before it gets children.
    reward_power
        Rewards are `(first value found / value) ** power`: dimensionless, and the better the tiling the greater.
    batch
        Tilings asked for at once. It belongs to the method: threads do not change it.
    """

    method: ClassVar[str] = "mcts"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "exploration": (0, 100), "best_weight": (0, 1), "greedy_rollouts": (0, 1), "stray": (0, 1),
        "expand_after": (0, 10**6), "reward_power": (0, 100), "batch": (1, 10**6),
    }  # fmt: skip
    exploration: float = 0.05
    best_weight: float = 0.7
    greedy_rollouts: float = 0.5
    stray: float = 0.15
    expand_after: int = 1
    reward_power: float = 2.0
    batch: int = 8

    def begin(self, space: AnySpace, seed: int) -> Study:
        """Start a study with a tree of one node."""
        return _MctsStudy(space, seed, self)
