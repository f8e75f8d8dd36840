"""Whatever the order of calls, the tape is the scalar model of itself; its faults are noticed."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from logitproof.properties.faults import REGISTRY
from logitproof.properties.tape_machine import TapeMachine

STEPS = settings(stateful_step_count=30)


@pytest.mark.property
def test_any_sequence_of_tape_calls_is_the_scalar_model() -> None:
    run_state_machine_as_test(TapeMachine, settings=STEPS)


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    [
        "adjoints-survive-pass",
        "assign-keeps-revision",
        "assign-while-read",
        "detach-keeps-graph",
        "gradient-written-while-read",
        "no-grad-records",
        "one-reader-closes-all",
        "release-forgets-nothing",
        "release-keeps-inner-nodes",
        "reused-node-overwrites",
        "seed-taken-for-ones",
        "stale-operand-accepted",
        "walk-before-all-children",
    ],
)
def test_the_machine_notices(fault: str) -> None:
    soon = settings(STEPS, max_examples=3000, phases=[Phase.generate], derandomize=True)
    with REGISTRY[fault], pytest.raises(AssertionError):
        run_state_machine_as_test(TapeMachine, settings=soon)
