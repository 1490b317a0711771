"""Optuna as a method of search: its samplers ask, our evaluator answers.

Each level of a space with more than one value is suggested to Optuna as a whole number, the value's place in its list.
What no legal tiling goes on with is repaired level by level (`SearchSpace.nearest`), and Optuna is told the value of
the repaired tiling; where that is known already, at once and without simulation. Optuna is only imported when a study
begins, and is an extra: `pip install 'mas_sim[optuna]'`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from mas_sim.errors import MasSimError, nearest
from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.searcher import Searcher, Study

SAMPLERS = ("tpe", "random")
"""Optuna's samplers on offer: tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011), and none."""


def load_optuna() -> ModuleType:
    """Import Optuna.

    Raises
    ------
    MasSimError
        If it is not installed; names the extra that installs it.
    """
    try:
        import optuna
    except ImportError as error:
        raise MasSimError("this method needs Optuna: pip install 'mas_sim[optuna]'") from error
    module: ModuleType = optuna
    return module


class _OptunaStudy(Study):
    """An Optuna study, with what it suggests repaired to rows of the space."""

    def __init__(self, space: AnySpace, seed: int, settings: "OptunaSearch") -> None:
        optuna = load_optuna()
        self._space, self._settings = space, settings
        most = space.choices.max(axis=0)
        self._most = {level: int(most[level]) for level in np.flatnonzero(most).tolist()}
        self._value = np.full(space.legal_count, np.nan)
        self._order = np.random.default_rng(seed).permutation(space.legal_count)
        self._at = 0
        sampler = optuna.samplers.RandomSampler(seed=seed)
        if settings.sampler == "tpe":
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=settings.startup, n_ei_candidates=settings.candidates, seed=seed
            )
        self._study = _quietly(optuna, lambda: optuna.create_study(sampler=sampler))
        self._waiting: dict[int, list[Any]] = {}

    def ask(self, most: int) -> IntArray:
        """Return what Optuna suggests, until enough of it is new; a tiling at random where it keeps to known ones."""
        rows: list[int] = []
        size = min(most, self._settings.batch, int(np.isnan(self._value).sum()))
        while len(rows) < size:
            row = self._suggested(rows)
            rows.append(self._fresh(rows) if row is None else row)
        return np.array(rows, dtype=np.int64)

    def _suggested(self, asked: list[int]) -> int | None:
        """Return the next row suggested that is new; None if it takes more than `patience` suggestions."""
        for _ in range(self._settings.patience):
            trial = self._study.ask()
            row = self._row_of(trial)
            if not np.isnan(self._value[row]):
                self._study.tell(trial, float(self._value[row]))
                continue
            self._waiting.setdefault(row, []).append(trial)
            if row not in asked:
                return row
        return None

    def _row_of(self, trial: Any) -> int:
        """Have a trial suggest a place at every level, and return the nearest legal row."""
        wanted = np.zeros((1, self._space.choices.shape[1]), np.int64)
        for level, most in self._most.items():
            wanted[0, level] = trial.suggest_int(f"level_{level}", 0, most)
        return int(self._space.nearest(wanted)[0])

    def _fresh(self, asked: list[int]) -> int:
        """Return a row at random that is new, and have Optuna take it for its own suggestion."""
        while not np.isnan(self._value[self._order[self._at]]) or int(self._order[self._at]) in asked:
            self._at += 1
        row = int(self._order[self._at])
        choice = self._space.choices[row]
        self._study.enqueue_trial({f"level_{level}": int(choice[level]) for level in self._most})
        trial = self._study.ask()
        self._row_of(trial)
        self._waiting.setdefault(row, []).append(trial)
        return row

    def tell(self, rows: IntArray, values: FloatArray) -> None:
        """Pass the values on to every trial that came to these rows."""
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            self._value[row] = value
            for trial in self._waiting.pop(row):
                self._study.tell(trial, value)


def _quietly(optuna: ModuleType, make: Any) -> Any:
    """Call `make` without Optuna's lines in the log; how much it logs otherwise is left as it was."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return make()
    finally:
        optuna.logging.set_verbosity(before)


@dataclass(frozen=True)
class OptunaSearch(Searcher):
    """Search with one of Optuna's samplers.

    Like every searcher it can be driven by hand, one tiling after the other, with a value from anywhere:

    >>> import numpy as np, mas_sim
    >>> from mas_sim.search import Evaluator, SearchSpace
    >>> arch, vit = mas_sim.load_arch("mas_edge"), mas_sim.load_workload("vit_b_16")
    >>> space = SearchSpace("flat", arch, vit, limit=4)
    >>> study, best = OptunaSearch(batch=1).begin(space, seed=0), float("inf")
    >>> with Evaluator(space, "latency") as evaluator:
    ...     for _ in range(20):
    ...         rows = study.ask(1)
    ...         values = evaluator.values(rows)
    ...         study.tell(rows, values)
    ...         best = min(best, float(values[0]))
    >>> best == float(evaluator.history().best[-1])
    True

    Parameters
    ----------
    sampler
        `tpe` or `random`. Optuna's `random` draws every level by itself and repairs what it gets, so that not all
        tilings are equally likely; `RandomSearch` is the fair baseline.
    startup
        Trials that TPE draws at random before it begins to model (Optuna's `n_startup_trials`).
    candidates
        Values of each level that TPE draws and weighs for a trial (Optuna's `n_ei_candidates`).
    patience
        Known tilings suggested in a row, after which one that is new is drawn at random.
    batch
        Tilings asked for at once; TPE knows least about what it does next if that is many.

    Raises
    ------
    MasSimError
        If there is no such sampler, or a setting makes no sense; when a study begins, if Optuna is not installed.
    """

    method: ClassVar[str] = "tpe"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "startup": (0, 10**6), "candidates": (1, 10**6), "patience": (1, 10**6), "batch": (1, 10**6),
    }  # fmt: skip
    sampler: str = "tpe"
    startup: int = 10
    candidates: int = 24
    patience: int = 8
    batch: int = 1

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        if self.sampler not in SAMPLERS:
            near = nearest(self.sampler, SAMPLERS)
            hint = f"; did you mean {near!r}?" if near else ""
            raise MasSimError(f"no sampler is called {self.sampler!r} (there are {', '.join(SAMPLERS)}){hint}")
        super().__post_init__()

    def begin(self, space: AnySpace, seed: int) -> Study:
        """Start an Optuna study of its own, in memory."""
        return _OptunaStudy(space, seed, self)
