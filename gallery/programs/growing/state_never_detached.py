import torch

torch.manual_seed(0)


def count(fn):
    seen, todo = set(), [fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(following for following, _ in node.next_functions)
    return len(seen)


drift = torch.zeros(4, requires_grad=True)
state = torch.zeros(4)
sizes = []
for step, observed in enumerate(torch.randn(8, 4)):
    state = 0.9 * state + drift  # CAUSE
    loss = (state - observed).abs().sum()
    sizes.append(count(loss.grad_fn))
    (grad,) = torch.autograd.grad(loss, drift, retain_graph=True)
    with torch.no_grad():
        drift -= 0.01 * grad
print("nodes per pass:", sizes)
