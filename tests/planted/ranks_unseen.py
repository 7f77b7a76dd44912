"""More programs of two ranks, not run before the first score was known."""

from __future__ import annotations

from typing import Final

from tests.planted.ranks import ONE, RankProgram

WRONG: Final = {
    "head_replaced_after_wrapping": RankProgram(
        """
        model = DDP(network(), find_unused_parameters=True)
        torch.manual_seed(1)
        model.module[2] = nn.Linear(16, 1)  # the cause
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        ("after DDP had wrapped it", "2.weight"),
        one="""
        model = network()
        torch.manual_seed(1)
        model[2] = nn.Linear(16, 1)
        F.mse_loss(model(features[:16]), targets[:16]).backward()
        """,
    ),
    "hook_that_clips": RankProgram(
        """
        net = network()
        def clipped(gradient):  # the cause
            return gradient.clamp(-0.01, 0.01)
        for parameter in net.parameters():
            parameter.register_hook(clipped)
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets * 3):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        ("hook", "before"),
        one="""
        model = network()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        F.mse_loss(model(features[:16]), targets[:16] * 3).backward()
        """,
    ),
    "summed_by_hand": RankProgram(
        """
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # the cause
            optimizer.step()
        """,
        ("2 times", "world size"),
        one=ONE,
    ),
    "temperature_outside_of_ddp": RankProgram(
        """
        model = DDP(network(last=3))
        scale = nn.Linear(3, 3, bias=False)
        nn.init.eye_(scale.weight)
        optimizer = torch.optim.SGD([*model.parameters(), *scale.parameters()], lr=0.05)
        for x, y in loader(features, classes):
            optimizer.zero_grad()
            F.cross_entropy(scale(model(x)), y).backward()
            optimizer.step()
        """,
        ("DDP",),
        one="""
        model = network(last=3)
        scale = nn.Linear(3, 3, bias=False)
        nn.init.eye_(scale.weight)
        F.cross_entropy(scale(model(features[:16])), classes[:16]).backward()
        model = nn.ModuleList([model, scale])
        """,
    ),
}

RIGHT: Final = {
    "static_graph_and_checkpoint": RankProgram(
        """
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = network(last=8), nn.Linear(8, 1)

            def forward(self, x):
                return self.last(checkpoint(self.first, x, use_reentrant=False))

        model = DDP(Net(), static_graph=True, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.smooth_l1_loss(model(x), y).backward()
            optimizer.step()
        """
    ),
    "sum_over_all_samples": RankProgram(
        """
        model = DDP(network(last=3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        size = 24 if rank == 0 else 4
        for step in range(3):
            rows = (torch.arange(size) + 30 * step + 24 * rank) % 96
            count = torch.tensor(float(size))
            dist.all_reduce(count)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(features[rows]), classes[rows], reduction="sum")
            (loss * world / count).backward()
            optimizer.step()
        """,
        one="""
        model = network(last=3)
        F.cross_entropy(model(features[:28]), classes[:28]).backward()
        """,
    ),
    "compressed_to_half": RankProgram(
        """
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model = DDP(network())
        model.register_comm_hook(None, fp16_compress_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for x, y in loader(features, targets):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        one=ONE,
    ),
    "same_points_other_targets": RankProgram(
        """
        model = DDP(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        points = torch.linspace(-1, 1, 48).reshape(8, 6)
        torch.manual_seed(30 + rank)
        for step in range(6):
            optimizer.zero_grad()
            F.mse_loss(model(points), torch.randn(8, 1)).backward()
            optimizer.step()
        """
    ),
}
