"""Do the dataflows keep the contract that go through DRAM with their scores, or keep them on chip but wait for them?"""

import pytest
from dataflow_contract import DataflowContract


class TestLayerWise(DataflowContract):
    bytes_through_dram = 4  # C and P out and in again

    @pytest.fixture
    def dataflow(self) -> str:
        return "layer_wise"


class TestSoftPipe(DataflowContract):
    bytes_through_dram = 2  # P out and in again

    @pytest.fixture
    def dataflow(self) -> str:
        return "soft_pipe"


class TestFlat(DataflowContract):
    @pytest.fixture
    def dataflow(self) -> str:
        return "flat"
