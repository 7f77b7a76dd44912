"""Programs of two ranks: some end up with other gradients than one process would, some do not.

Each is a text that torchrun's variables suffice for. ``one`` is what one process does with the
batches that all ranks have at the first step: torch alone says whether gradients differ from that.
"""

from __future__ import annotations

import textwrap
from typing import Final, NamedTuple

_FRAME: Final = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
DATA

BODY
dist.barrier()
dist.destroy_process_group()
"""
_DATA: Final = """\
torch.manual_seed(0)
features = torch.randn(96, 6)
targets = features[:, :2].sum(1, keepdim=True).sin()
classes = (features[:, 0] > 0).long() + (features[:, 1] > 0.5).long()


def loader(*tensors, size=8):
    data = TensorDataset(*tensors)
    return DataLoader(data, size, sampler=DistributedSampler(data, world, rank, shuffle=False))


def network(last=1):
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, last))

"""
CAUSE: Final = "# the cause"


class RankProgram(NamedTuple):
    """A program of two ranks."""

    body: str
    words: tuple[str, ...] = ()
    """That have to be in the answer; none: the gradients are those of one process."""
    one: str = ""
    """Leaves the gradients of one process in ``model``; empty: it has none to compare with, as
    where random numbers are drawn or each rank has a batch of its own on purpose."""

    @property
    def text(self) -> str:
        """The script."""
        body = textwrap.dedent(self.body).strip()
        return _FRAME.replace("DATA", _DATA).replace("BODY", body)

    @property
    def text_of_one(self) -> str:
        """What one process does at the first step."""
        imports = _FRAME.partition("\n\n")[0]
        return f"{imports}\n{_DATA}\n{textwrap.dedent(self.one).strip()}\n"

    @property
    def line(self) -> int:
        """Of the cause; 0: no line is marked."""
        lines = self.text.splitlines()
        return next((n for n, text in enumerate(lines, 1) if CAUSE in text), 0)


ONE: Final = """
model = network()
F.mse_loss(model(features[:16]), targets[:16]).backward()
"""

WRONG: Final = {
    "no_sync_never_ends": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, (x, y) in enumerate(loader(features, targets)):
            with model.no_sync():
                out = model(x)  # the cause
                (F.mse_loss(out, y) / 2).backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
        """,
        ("no_sync",),
        one="""
        model = network()
        (F.mse_loss(model(features[:32]), targets[:32])).backward()
        """,
    ),
    "called_past_ddp": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for x, y in loader(features, targets):
            out = model.module(x)  # the cause
            optimizer.zero_grad()
            F.mse_loss(out, y).backward()
            optimizer.step()
        """,
        ("past DDP",),
        one=ONE,
    ),
    "parameter_that_ddp_ignores": RankProgram(
        """
        net = network()
        DDP._set_params_and_buffers_to_ignore_for_model(net, ["2.weight"])
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        ("2.weight", "ignore"),
        one=ONE,
    ),
    "same_batches": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        data = DataLoader(TensorDataset(features, targets), 8, shuffle=True)
        for x, y in data:
            out = model(x)  # the cause
            optimizer.zero_grad()
            F.mse_loss(out, y).backward()
            optimizer.step()
        """,
        ("same batch", "DistributedSampler"),
    ),
    "clipped_before_it_is_reduced": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        odd = (torch.arange(96) % 2)[:, None]
        batches = list(loader(features, targets * (1 + 9 * odd)))
        for one, two in zip(batches[::2], batches[1::2]):
            optimizer.zero_grad()
            with model.no_sync():
                F.mse_loss(model(one[0]), one[1]).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # the cause
            F.mse_loss(model(two[0]), two[1]).backward()
            optimizer.step()
        """,
        ("before", "reduced"),
        one="""
        model = network()
        targets *= 1 + 9 * (torch.arange(96) % 2)[:, None]
        F.mse_loss(model(features[:16]), targets[:16]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        F.mse_loss(model(features[16:32]), targets[16:32]).backward()
        """,
    ),
    "loss_is_a_sum": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y, reduction="sum")  # the cause
            loss.backward()
            optimizer.step()
        """,
        ("sum", "1/2"),
        one="""
        model = network()
        F.mse_loss(model(features[:16]), targets[:16], reduction="sum").backward()
        """,
    ),
    "uneven_batches_weigh_alike": RankProgram(
        """
        model = DDP(network(last=3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        size = 24 if rank == 0 else 4
        for step in range(3):
            rows = torch.arange(size) + 30 * step + 24 * rank
            optimizer.zero_grad()
            loss = F.cross_entropy(model(features[rows % 96]), classes[rows % 96])  # the cause
            loss.backward()
            optimizer.step()
        """,
        ("24", "4", "weigh"),
        one="""
        model = network(last=3)
        F.cross_entropy(model(features[:28]), classes[:28]).backward()
        """,
    ),
    "written_on_one_rank": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if rank == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)  # the cause
            optimizer.step()
        """,
        ("after backward",),
        one=ONE,
    ),
}
"""Those that the rules were written with."""

RIGHT: Final = {
    "mean_and_sampler": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        one=ONE,
    ),
    "accumulation_that_syncs": RankProgram(
        """
        model = DDP(network(last=3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        batches = list(loader(features, classes))
        for one, two in zip(batches[::2], batches[1::2]):
            optimizer.zero_grad()
            with model.no_sync():
                (F.cross_entropy(model(one[0]), one[1]) / 2).backward()
            (F.cross_entropy(model(two[0]), two[1]) / 2).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        """,
        one="""
        model = network(last=3)
        F.cross_entropy(model(features[:32]), classes[:32]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        """,
    ),
    "dropout_of_other_seeds": RankProgram(
        """
        model = DDP(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 1)))
        torch.manual_seed(10 + rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """
    ),
    "batch_norm": RankProgram(
        """
        net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad(set_to_none=False)
            (model(x) - y).abs().mean().backward()
            optimizer.step()
        """
    ),
    "averaged_by_hand": RankProgram(
        """
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
        """,
        one=ONE,
    ),
    "two_optimizers": RankProgram(
        """
        maker, judge = DDP(nn.Linear(4, 6)), DDP(network())
        optimizers = [torch.optim.Adam(each.parameters(), lr=0.01) for each in (maker, judge)]
        torch.manual_seed(20 + rank)
        for (x,) in loader(features):
            noise = torch.randn(8, 4)
            optimizers[1].zero_grad()
            one, zero = torch.ones(8, 1), torch.zeros(8, 1)
            both = torch.cat([x, maker(noise).detach()])
            F.binary_cross_entropy_with_logits(judge(both), torch.cat([one, zero])).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            F.binary_cross_entropy_with_logits(judge(maker(noise)), one).backward()
            optimizers[0].step()
        """
    ),
    "branch_of_one_rank": RankProgram(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)

            def forward(self, x):
                h = self.first(x).relu()
                return self.a(h) if rank == 0 else self.a(h) + self.b(h)

        model = DDP(Net(), find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """
    ),
    "hooks_that_mask_and_scale": RankProgram(
        """
        net = network()
        mask = (torch.arange(96).reshape(16, 6) % 3 > 0).float()
        net[0].weight.register_hook(lambda gradient: gradient * mask)
        net[2].weight.register_hook(lambda gradient: gradient * 0.1)
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        one="""
        model = network()
        mask = (torch.arange(96).reshape(16, 6) % 3 > 0).float()
        F.mse_loss(model(features[:16]), targets[:16]).backward()
        model[0].weight.grad *= mask
        model[2].weight.grad *= 0.1
        """,
    ),
    "scaled_between_passes": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        batches = list(loader(features, targets))
        for one, two in zip(batches[::2], batches[1::2]):
            optimizer.zero_grad()
            with model.no_sync():
                F.mse_loss(model(one[0]), one[1]).backward()
            for parameter in model.parameters():
                parameter.grad.mul_(0.5).add_(parameter.detach(), alpha=0.01)
            F.mse_loss(model(two[0]), two[1]).backward()
            optimizer.step()
        """,
        one="""
        model = network()
        F.mse_loss(model(features[:16]), targets[:16]).backward()
        for parameter in model.parameters():
            parameter.grad.mul_(0.5).add_(parameter.detach(), alpha=0.01)
        F.mse_loss(model(features[16:32]), targets[16:32]).backward()
        """,
    ),
    "weights_averaged_in_place_of_gradients": RankProgram(
        """
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= world
        """
    ),
    "per_sample_weights": RankProgram(
        """
        model = DDP(network(last=3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, classes):
            optimizer.zero_grad()
            weights = x[:, 0].abs()
            each = F.cross_entropy(model(x), y, reduction="none")
            (each * weights / weights.sum()).sum().backward()
            optimizer.step()
        """
    ),
}
"""Those that nothing is to be said of."""
