"""Whatever the order of calls, a session is full recomputation."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from logitproof.properties.machines import SessionMachine


@pytest.mark.property
def test_any_sequence_of_session_calls_is_full_recomputation() -> None:
    run_state_machine_as_test(SessionMachine, settings=settings(stateful_step_count=40))
