# SPDX-License-Identifier: Apache-2.0
"""Tasks vit and resnet on Fashion-MNIST: a ViT of 9.0 million parameters with AdamW, a ResNet of 1.5 with BatchNorm and SGD with momentum."""

from __future__ import annotations

import quality_data
import torch
import torch.nn.functional as F
from quality_task import Model, Optimizer, adamw
from quality_task import Task as Base
from torch import Tensor, nn


SIDE, CLASSES = 28, 10
HELD_OUT, VALIDATION, ROWS = 4_800, 200, 200  # images, of the package's own test set
PATCH = 14
BATCH = 128


class Attention(nn.Module):
    """A transformer's block that sees all places."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, dim=2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


class ViT(nn.Module):
    """Four patches of 14 x 14, so that a step sees many images; the mean over places is classified."""

    def __init__(self, width: int, layers: int, patch: int = PATCH) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn((SIDE // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(Attention(width, width // 32) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(self.norm(h.mean(1)))
        return out


class Residual(nn.Module):
    """Two convolutions of 3 x 3, each behind BatchNorm and ReLU."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(before), nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(before, width, 1, stride, bias=False) if before != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(x))
        out: Tensor = self.conv2(F.relu(self.norm2(self.conv1(h)))) + self.short(x if isinstance(self.short, nn.Identity) else h)
        return out


class ResNet(nn.Module):
    """Three stages of ``blocks`` residuals: 14 x 14, 7 x 7, 4 x 4."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1, bias=False)
        stages, before = [], width
        for i in range(3):
            for j in range(blocks):
                stages.append(Residual(before, width << i, 2 if i and not j else 1))
                before = width << i
        self.stages = nn.Sequential(*stages)
        self.norm, self.head = nn.BatchNorm2d(before), nn.Linear(before, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm(self.stages(self.stem(x))))
        out: Tensor = self.head(h.mean((2, 3)))
        return out


class Images(Base):
    """Images drawn at random, shifted by up to two pixels; the test set's first images are held out."""

    def batch(self, n: int) -> tuple[Tensor, ...]:
        x, y = quality_data.fashion("train")
        g = self.generator(n)
        rows = torch.randint(0, len(x), (BATCH // (4 if self.quick else 1),), generator=g)
        down, right = torch.randint(-2, 3, (2,), generator=g).tolist()
        return torch.roll(x[rows], (down, right), (2, 3)), y[rows]

    def _rows(self, first: int, count: int) -> list[tuple[Tensor, ...]]:
        x, y = quality_data.fashion("t10k")
        return list(zip(x[first : first + count].split(ROWS), y[first : first + count].split(ROWS)))

    def held_out(self) -> list[tuple[Tensor, ...]]:
        return self._rows(0, HELD_OUT // 8 if self.quick else HELD_OUT)

    def validation(self) -> list[tuple[Tensor, ...]]:
        return self._rows(HELD_OUT, VALIDATION)

    def loss(self, model: Model, batch: tuple[Tensor, ...]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])


class VisionTransformer(Images):
    name, lr = "vit", 3e-4

    def __init__(self, seed: int, quick: bool = False) -> None:
        super().__init__(seed, quick, every=5)

    def make(self) -> tuple[Model, Optimizer]:
        net = ViT(64, 2) if self.quick else ViT(384, 5)
        return net, adamw(net, self.lr)


class Residuals(Images):
    name, lr = "resnet", 0.05

    def __init__(self, seed: int, quick: bool = False) -> None:
        super().__init__(seed, quick, every=5)

    def make(self) -> tuple[Model, Optimizer]:
        net = ResNet(16, 1) if self.quick else ResNet(48, 2)
        return net, torch.optim.SGD(net.parameters(), lr=self.lr, momentum=0.9, weight_decay=5e-4)
