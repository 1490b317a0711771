"""Instructions whose fields mean nothing: those that name no tile, no step or no slot, so that none could run."""

import numpy as np

from mas_sim.access_rules import LOADS_OF_KV, RULES, SOFTMAX_OPS, STEP_OPS, TILE_OPS, rules_of
from mas_sim.geometry import Flags, Geometry, in_row_block, pass_of
from mas_sim.overwrites import broken_links, victims_of
from mas_sim.schedule import (
    F_ALT,
    F_DST,
    F_GROUP,
    F_OP,
    F_QUEUE,
    F_ROW,
    F_SRC1,
    F_SRC2,
    F_STEP,
    F_TILE,
    OP_ONLINE,
    OP_PV,
    OP_QK,
    UNITS,
    Schedule,
)


class _Malformed:
    """The messages on one schedule's instructions."""

    def __init__(self, schedule: Schedule, geometry: Geometry) -> None:
        self.schedule, self.geometry = schedule, geometry
        self.code = schedule.instructions
        self.ops = self.code[:, F_OP]
        self.number = np.where(np.isin(self.ops, SOFTMAX_OPS), pass_of(self.code), 0)
        self.faults: list[str] = []

    def refuse(self, bad: Flags, problem: str) -> None:
        """Report the instructions for which `bad` is true."""
        for i in np.flatnonzero(bad):
            self.faults.append(f"malformed instruction: {self.schedule.describe(int(i))} {problem}")

    def check_work(self) -> None:
        """Look for work items, tiles, passes and steps that do not exist."""
        code, ops, geometry = self.code, self.ops, self.geometry
        group, row, step = code[:, F_GROUP], code[:, F_ROW], code[:, F_STEP]
        no_row = (row < 0) | (row >= geometry.rows)
        self.refuse(no_row | (group < 0) | (group >= geometry.groups), "works on a row block that does not exist")
        tiles = np.where(np.isin(ops, TILE_OPS), geometry.tiles, 1 << 30)
        no_tile = (code[:, F_TILE] < 0) | (code[:, F_TILE] >= tiles)
        no_pass = (self.number < 0) | (self.number >= geometry.passes)
        self.refuse(no_tile | no_pass, "works on a tile or a pass that does not exist")
        steps = np.where(np.isin(ops, STEP_OPS), geometry.row_pairs[np.where(no_row, 0, row)], 1 << 30)
        self.refuse((step < 0) | (step >= steps), "is at a step that its row block does not have")
        other_form = np.isin(ops, SOFTMAX_OPS) & (ops != geometry.softmax_op)
        self.refuse(other_form, "does softmax in another form than most of the schedule")

    def check_slots(self) -> None:
        """Look for operands without a slot, and for slots that cannot be reached."""
        code, ops, geometry, schedule = self.code, self.ops, self.geometry, self.schedule
        only_reduces = np.isin(ops, SOFTMAX_OPS) & (self.number < geometry.first_write)
        carries = (ops == OP_ONLINE) & (self.number == 0) & (code[:, F_STEP] > 0)
        for op in RULES:
            for operand in {rule.operand for rule in rules_of(op, geometry) if rule.operand >= 0}:
                slot, used = code[:, operand], ops == op
                if operand == F_SRC2:
                    used = carries
                elif operand == F_DST:
                    used = used & ~only_reduces
                self.refuse(used & (slot < 0), "lacks a slot")
                if not schedule.arch.l1.shared:
                    away = slot // len(schedule.slots) != code[:, F_QUEUE] // UNITS
                    self.refuse((ops == op) & (slot >= 0) & away, "uses a slot in another core's private L1")
        slot, n_slots = code[:, F_SRC2], len(schedule.slots) * schedule.arch.cores
        self.refuse((ops == OP_ONLINE) & ((slot < -1) | (slot >= n_slots)), "takes statistics from no slot")
        early = (ops == OP_ONLINE) & (self.number == 0) & (code[:, F_STEP] == 0) & (slot >= 0)
        self.refuse(early, "takes statistics from before its row block's first kv tile")

    def check_windows(self) -> None:
        """Look for tiles that are not in the window under proactive overwrite, or for a place that is none for it."""
        code, ops, geometry, schedule = self.code, self.ops, self.geometry, self.schedule
        loads = np.isin(ops, LOADS_OF_KV)
        self.refuse(loads & (code[:, F_TILE] + code[:, F_STEP] >= geometry.tiles), "loads tiles that do not exist")
        to_row_block = in_row_block(schedule, code[:, F_DST])
        self.refuse(loads & (code[:, F_STEP] > 0) & ~to_row_block, "loads several tiles to a place for one")
        window = np.where(ops == OP_QK, geometry.k_window, geometry.v_window)
        outside = ((ops == OP_QK) | (ops == OP_PV)) & (code[:, F_TILE] < window)
        early_slot = np.where(np.isin(np.arange(len(code)), victims_of(schedule)), code[:, F_ALT], -1)
        in_window = in_row_block(schedule, code[:, F_SRC1]) | in_row_block(schedule, early_slot)
        self.refuse(outside & in_window, "reads a tile from the window that is not in there")


def malformed(schedule: Schedule, geometry: Geometry) -> list[str]:
    """Find the instructions whose fields name no tile, no step or no slot, so that nothing can be said of their data.

    Returns
    -------
    list of str
        One message for each such instruction and field.
    """
    found = _Malformed(schedule, geometry)
    found.check_work()
    found.check_slots()
    found.check_windows()
    return found.faults + broken_links(schedule, geometry)
