"""PyTorch's ports of `images`."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.tensors_gpu.images import GROUPS, frequencies
from benchmarks.tensors_gpu.program import Run, Sizes, Tree
from benchmarks.tensors_gpu.torch_idioms import compiled, training_step, value_and_gradient


def conv(s: Sizes, x: Any, weights: Any) -> Run:
    return compiled(lambda x, weights: F.conv2d(x, weights, padding=1), x, weights)


def batch_norm(x: Any, w: Tree) -> Any:
    return F.batch_norm(x, None, None, w["scale"], w["shift"], training=True)


def resnet_block(s: Sizes, layers: Tree, x: Any) -> Run:
    def loss(arguments: Tree) -> Any:
        (first, second), x = arguments
        hidden = F.relu(batch_norm(F.conv2d(x, first["kernel"], padding=1), first))
        hidden = batch_norm(F.conv2d(hidden, second["kernel"], padding=1), second)
        return (F.relu(x + hidden) ** 2).mean()

    return value_and_gradient(loss, (layers, x))


def convolved(w: Tree, x: Any) -> Any:
    return F.silu(F.group_norm(F.conv2d(x, w["kernel"], padding=1), GROUPS, w["scale"], w["shift"]))


def unet(w: Tree, x: Any, embedded: Any = None) -> Any:
    skipped = convolved(w["down"], x)
    hidden = convolved(w["middle"][0], F.max_pool2d(skipped, 2))
    if embedded is not None:
        hidden = hidden + embedded[:, :, None, None]
    hidden = convolved(w["middle"][1], hidden)
    widened = F.interpolate(hidden, scale_factor=2, mode="nearest")
    return convolved(w["up"], torch.cat([skipped, widened], dim=1))


def unet_block(s: Sizes, w: Tree, x: Any) -> Run:
    return value_and_gradient(lambda arguments: (unet(*arguments) ** 2).mean(), (w, x))


def diffusion(s: Sizes, parameters: Tree, state: Tree, pictures: Any, noise: Any, time: Any, kept: Any) -> Run:
    rates = torch.from_numpy(frequencies()).to(pictures.device)

    def loss(w: Tree, pictures: Any, noise: Any, time: Any, kept: Any) -> Any:
        share = kept[time][:, None, None, None]
        noisy = torch.sqrt(share) * pictures + torch.sqrt(1.0 - share) * noise
        angles = time.to(pictures.dtype)[:, None] * rates
        waves = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
        hidden = unet(w["unet"], noisy, F.silu(waves @ w["time"]))
        return F.mse_loss(F.conv2d(hidden, w["last"], padding=1), noise)

    return training_step(loss, parameters, pictures, noise, time.long(), kept)


def fno(s: Sizes, parameters: Tree, x: Any) -> Run:
    modes = s.modes

    def loss(w: Tree, x: Any) -> Any:
        batch, channels, side, _ = x.shape
        spectrum = torch.fft.rfft2(x)
        weights = torch.complex(w["spectral"][0], w["spectral"][1])
        mixed = torch.zeros(batch, channels, side, side // 2 + 1, dtype=spectrum.dtype, device=x.device)
        low, high = spectrum[:, :, :modes, :modes], spectrum[:, :, -modes:, :modes]
        mixed[:, :, :modes, :modes] = torch.einsum("bihw,iohw->bohw", low, weights[0])
        mixed[:, :, -modes:, :modes] = torch.einsum("bihw,iohw->bohw", high, weights[1])
        local = F.conv2d(x, w["local"].T[:, :, None, None])
        return (F.gelu(torch.fft.irfft2(mixed, s=(side, side)) + local) ** 2).mean()

    return value_and_gradient(loss, parameters, x)


PORTS: dict[str, Callable[..., Run]] = {
    "conv": conv,
    "resnet_block": resnet_block,
    "unet_block": unet_block,
    "diffusion": diffusion,
    "fno": fno,
}
