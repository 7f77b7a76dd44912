"""What keeps a tensor is named: through tracebacks, ``itertools.cycle`` and optimizers, too."""

from __future__ import annotations

from itertools import cycle

import torch
from torch import Tensor, nn

from agviz.record.files import Files
from agviz.record.live_graphs import _left_in_state
from agviz.record.referrers import Referrers, in_variables
from agviz.traces.live_graphs import CONTAINER, CYCLED, STATE


class Trainer:
    """Keeps what went wrong."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, Exception]] = []

    def step(self, number: int) -> None:
        loss = torch.full((3,), float(number), requires_grad=True).square()
        raise ValueError(f"{len(loss)} of them")

    def run(self) -> None:
        for number in range(3):
            try:
                self.step(number)
            except ValueError as error:
                self.errors.append((number, error))


def losses_of(trainer: Trainer) -> list[int]:
    found = []
    for _, error in trainer.errors:
        trace = error.__traceback__
        assert trace is not None
        assert trace.tb_next is not None
        found.append(id(trace.tb_next.tb_frame.f_locals["loss"]))
    return found


def test_an_exception_keeps_the_variables_of_the_functions_that_it_left() -> None:
    trainer = Trainer()
    trainer.run()
    assert set(losses_of(trainer)) <= in_variables()
    trace = trainer.errors[1][1].__traceback__
    assert trace is not None
    assert trace.tb_next is not None
    kept = [trace.tb_next.tb_frame.f_locals["loss"]]
    named = Referrers(Files(), kept, []).named(kept[0])
    assert named is not None
    assert (named.kind, named.name) == (CONTAINER, "Trainer.errors")
    assert named.what == "list of exceptions"


def test_what_cycle_has_given_is_kept_by_it() -> None:
    batches = cycle(torch.full((2,), float(number)) for number in range(4))
    given = [next(batches) for _ in range(3)]
    named = Referrers(Files(), given, [given]).named(given[0])
    assert named is not None
    assert (named.kind, named.name, named.what) == (CONTAINER, CYCLED, CYCLED)


def stepped(*, clean: bool) -> tuple[torch.optim.Optimizer, list[Tensor]]:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.Adam([weight])
    for _ in range(4):
        old = optimizer.param_groups[0]["params"][0]
        old.sum().backward()
        optimizer.step()
        new = nn.Parameter(old.detach().clone())
        optimizer.param_groups[0]["params"][0] = new
        state = optimizer.state.pop(old) if clean else optimizer.state[old]
        optimizer.state[new] = dict(state)
    everything = [value for state in optimizer.state.values() for value in state.values()]
    return optimizer, [*optimizer.state, *everything]


def test_states_of_parameters_that_were_replaced_are_told() -> None:
    optimizer, tensors = stepped(clean=False)
    found = _left_in_state(tensors)
    assert found is not None
    assert (found.kind, found.name, found.reached) == (STATE, "Adam.state", 4)
    del optimizer


def test_an_optimizer_whose_states_were_taken_out_is_left_alone() -> None:
    optimizer, tensors = stepped(clean=True)
    assert _left_in_state(tensors) is None
    del optimizer
