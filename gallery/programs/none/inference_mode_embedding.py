import torch
from torch import nn

torch.manual_seed(0)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(12, 6)
        self.text = nn.EmbeddingBag(40, 6)
        self.scale = nn.Parameter(torch.tensor(1.0))

    @torch.inference_mode()
    def encode_text(self, tokens):
        return nn.functional.normalize(self.text(tokens), dim=-1)  # CAUSE

    def forward(self, images, tokens):
        image = nn.functional.normalize(self.image(images), dim=-1)
        text = self.encode_text(tokens).clone()  # CAUSE
        return self.scale.exp() * image @ text.T


model = Clip()
optimizer = torch.optim.AdamW(model.parameters())
logits = model(torch.randn(5, 12), torch.randint(40, (5, 4)))
loss = nn.functional.cross_entropy(logits, torch.arange(5))
loss.backward()
optimizer.step()
print("text tower", model.text.weight.grad)
