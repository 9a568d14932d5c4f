"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose
update has its singular values brought near 1."""

import torch


class Muon(torch.optim.Optimizer):
    """For matrices. Those of one shape are done together; fused.muon, where it is given,
    does all at once."""

    def __init__(self, matrices, lr, momentum=0.95, weight_decay=0.01, fused=None):
        super().__init__(matrices, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        self.fused = fused

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if not self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            if self.fused:
                gradients, momenta = [p.grad for p in group["params"]], [self.state[p]["momentum"] for p in group["params"]]
                self.fused(group["params"], gradients, momenta, group["lr"], group["momentum"], group["weight_decay"])
                continue
            for p in group["params"]:
                state = self.state[p]
                state["momentum"].mul_(group["momentum"]).add_(p.grad)
                update = p.grad + group["momentum"] * state["momentum"]
                # A wide matrix stands for its transpose: its products are smaller.
                wide = p.shape[0] <= p.shape[1]
                shapes.setdefault(tuple(sorted(p.shape)), []).append((p, update if wide else update.t(), wide))
            for members in shapes.values():
                updates = orthogonal(torch.stack([u for _, u, _ in members]))
                for (p, _, wide), update in zip(members, updates):
                    rate = group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update if wide else update.t(), alpha=-rate)


def orthogonal(x):
    """Five Newton–Schulz steps on matrices [n, rows, columns] with rows <= columns, in
    bfloat16; the coefficients are the authors'."""
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.float()
