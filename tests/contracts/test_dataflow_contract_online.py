"""Do the dataflows with online softmax keep the contract, in sequence and overlapped, with exp on either unit?"""

import pytest
from dataflow_contract import DataflowContract


class TestFlash(DataflowContract):
    choices = ({"overlap": "none"},)

    @pytest.fixture
    def dataflow(self) -> str:
        return "flash"


class TestFlashPingPong(TestFlash):
    choices = ({"overlap": "ping_pong"},)


class TestFuseMaxVec(DataflowContract):
    choices = ({"overlap": "pipelined"}, {"overlap": "none"})

    @pytest.fixture
    def dataflow(self) -> str:
        return "fusemax"


class TestFuseMaxMac(TestFuseMaxVec):
    """Scores stay in the MAC array's accumulators, so these must hold them."""

    choices = ({"overlap": "pipelined", "exp_on": "mac"}, {"overlap": "none", "exp_on": "mac"})
    arch = {"l0.accumulator_kib": 64.0}  # noqa: RUF012
