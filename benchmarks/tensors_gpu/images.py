"""Networks on images: a convolution, blocks of a ResNet and a U-Net, a diffusion step, a Fourier neural operator."""

from typing import Any

import numpy as np

from benchmarks.tensors_gpu.attention import loss_and_mean
from benchmarks.tensors_gpu.program import (
    Array,
    Program,
    Sizes,
    Tree,
    adam_state,
    dense,
    integers,
    normal,
    one_size,
    three_sizes,
    uniform,
)

GROUPS = 8  # of channels that are normalised together


def kernel(inputs: int, outputs: int, seed: int, side: int = 3) -> Array:
    return normal((outputs, inputs, side, side), seed, (inputs * side * side) ** -0.5)


def images(s: Sizes, seed: int = 0) -> Array:
    return normal((s.batch, s.channels, s.side, s.side), seed)


# --- one convolution -------------------------------------------------------------------------------------------------


def conv_inputs(s: Sizes) -> tuple[Array, ...]:
    return images(s), kernel(s.channels, s.channels, 1)


def conv(xp: Any, s: Sizes, x: Any, weights: Any) -> Tree:
    return xp.conv(x, weights)


# --- a block of a ResNet, normalised by the batch --------------------------------------------------------------------


def resnet_inputs(s: Sizes) -> tuple[Tree, ...]:
    layers = [
        {"kernel": kernel(s.channels, s.channels, seed), "scale": uniform((s.channels,), seed, 0.5, 1.5),
         "shift": normal((s.channels,), seed + 1)}
        for seed in (1, 3)
    ]  # fmt: skip
    return layers, images(s)


def batch_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    mean = xp.mean(x, axis=(0, 2, 3), keepdims=True)
    variance = xp.mean((x - mean) ** 2, axis=(0, 2, 3), keepdims=True)
    return (x - mean) / xp.sqrt(variance + 1e-5) * scale[:, None, None] + shift[:, None, None]


def resnet_block(xp: Any, s: Sizes, layers: Tree, x: Any) -> Tree:
    def loss(layers: Tree, x: Any) -> Any:
        first, second = layers
        hidden = xp.nn.relu(batch_norm(xp, xp.conv(x, first["kernel"]), first["scale"], first["shift"]))
        hidden = batch_norm(xp, xp.conv(hidden, second["kernel"]), second["scale"], second["shift"])
        return xp.mean(xp.nn.relu(x + hidden) ** 2)

    return xp.value_and_grad(loss, (0, 1))(layers, x)


# --- a block of a U-Net ----------------------------------------------------------------------------------------------


def layer(inputs: int, outputs: int, seed: int) -> Tree:
    return {
        "kernel": kernel(inputs, outputs, seed),
        "scale": uniform((outputs,), seed, 0.5, 1.5),
        "shift": normal((outputs,), seed + 1, 0.1),
    }


def unet_layers(channels: int, inputs: int) -> Tree:
    """Down at full resolution, two in the middle at half of it, and up again, with a skip connection."""
    return {
        "down": layer(inputs, channels, 1),
        "middle": [layer(channels, 2 * channels, 3), layer(2 * channels, channels, 5)],
        "up": layer(2 * channels, channels, 7),
    }


def group_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    batch, channels, height, width = x.shape
    groups = xp.reshape(x, (batch, GROUPS, channels // GROUPS, height, width))
    mean = xp.mean(groups, axis=(2, 3, 4), keepdims=True)
    variance = xp.mean((groups - mean) ** 2, axis=(2, 3, 4), keepdims=True)
    normalised = xp.reshape((groups - mean) / xp.sqrt(variance + 1e-5), x.shape)
    return normalised * scale[:, None, None] + shift[:, None, None]


def convolved(xp: Any, w: Tree, x: Any) -> Any:
    return xp.nn.silu(group_norm(xp, xp.conv(x, w["kernel"]), w["scale"], w["shift"]))


def unet(xp: Any, w: Tree, x: Any, embedded: Any = None) -> Any:
    """With an embedding of the time added in the middle, if there is one."""
    skipped = convolved(xp, w["down"], x)
    hidden = convolved(xp, w["middle"][0], xp.max_pool(skipped))
    if embedded is not None:
        hidden = hidden + embedded[:, :, None, None]
    hidden = convolved(xp, w["middle"][1], hidden)
    widened = xp.repeat(xp.repeat(hidden, 2, axis=2), 2, axis=3)
    return convolved(xp, w["up"], xp.concat([skipped, widened], axis=1))


def unet_inputs(s: Sizes) -> tuple[Tree, ...]:
    return unet_layers(s.channels, s.channels), images(s)


def unet_block(xp: Any, s: Sizes, w: Tree, x: Any) -> Tree:
    def loss(w: Tree, x: Any) -> Any:
        return xp.mean(unet(xp, w, x) ** 2)

    return xp.value_and_grad(loss, (0, 1))(w, x)


# --- a training step of a diffusion model ----------------------------------------------------------------------------

STEPS = 1000


def diffusion_inputs(s: Sizes) -> tuple[Tree, ...]:
    parameters = {
        "unet": unet_layers(s.channels, 3),
        "time": dense(64, 2 * s.channels, 11),
        "last": kernel(s.channels, 3, 13),
    }
    pictures, noise = (normal((s.batch, 3, s.side, s.side), seed) for seed in (21, 22))
    kept = np.cumprod(1.0 - np.linspace(1e-4, 0.02, STEPS)).astype(np.float32)
    return parameters, adam_state(parameters), pictures, noise, integers((s.batch,), STEPS, 23), kept


def frequencies() -> Array:
    return np.exp(-np.log(10_000.0) * np.arange(32) / 32).astype(np.float32)


def diffusion(
    xp: Any, s: Sizes, parameters: Tree, state: Tree, pictures: Any, noise: Any, time: Any, kept: Any
) -> Tree:
    share = xp.take(kept, time, axis=0)[:, None, None, None]
    noisy = xp.sqrt(share) * pictures + xp.sqrt(1.0 - share) * noise
    angles = xp.astype(time, pictures.dtype)[:, None] * frequencies()
    waves = xp.concat([xp.sin(angles), xp.cos(angles)], axis=1)

    def loss(w: Tree) -> Any:
        hidden = unet(xp, w["unet"], noisy, xp.nn.silu(waves @ w["time"]))
        return xp.mean((xp.conv(hidden, w["last"]) - noise) ** 2)

    value, gradients = xp.value_and_grad(loss)(parameters)
    return *xp.adam(parameters, gradients, state), value


# --- a layer of a Fourier neural operator ----------------------------------------------------------------------------


def fno_inputs(s: Sizes) -> tuple[Tree, ...]:
    """Complex weights of the low frequencies, positive and negative along the rows, as pairs of real numbers."""
    shape = 2, 2, s.channels, s.channels, s.modes, s.modes
    parameters = {"spectral": normal(shape, 1, 1.0 / s.channels), "local": dense(s.channels, s.channels, 2)}
    return parameters, images(s)


def fno(xp: Any, s: Sizes, parameters: Tree, x: Any) -> Tree:
    batch, channels, side, _ = x.shape
    modes = s.modes

    def loss(w: Tree) -> Any:
        spectrum = xp.fft.rfftn(x, axes=(2, 3))
        weights = w["spectral"][0] + 1j * w["spectral"][1]
        low = xp.einsum("bihw,iohw->bohw", spectrum[:, :, :modes, :modes], weights[0])
        high = xp.einsum("bihw,iohw->bohw", spectrum[:, :, -modes:, :modes], weights[1])
        between = xp.zeros((batch, channels, side - 2 * modes, modes), dtype=low.dtype)
        rows = xp.concat([low, between, high], axis=2)
        beyond = xp.zeros((batch, channels, side, side // 2 + 1 - modes), dtype=low.dtype)
        mixed = xp.fft.irfftn(xp.concat([rows, beyond], axis=3), s=(side, side), axes=(2, 3))
        local = xp.einsum("bihw,io->bohw", x, w["local"])
        return xp.mean(xp.nn.gelu(mixed + local) ** 2)

    return xp.value_and_grad(loss)(parameters)


# Where a sum before a relu is nearly zero, rounding decides its sign, and with it the gradients of a channel. Against
# float64, 1 of 64 sums of the small block's gradient changes in JAX (by 1.4 %, of the kernels' gradient 0.9 % of the
# elements), none in livegrad (2e-5 at most) or in PyTorch (4e-5).
FLIPPED = 0.02

PICTURES = "{batch} × {channels} × {side} × {side}"
SMALL = Sizes(batch=2, channels=8, side=8)


def image_sizes(*sizes: tuple[int, int, int]) -> dict[str, Sizes]:
    small, medium, large = (Sizes(batch=b, channels=c, side=n) for b, c, n in sizes)
    return three_sizes(small, medium, large)


def fno_sizes(batch: int, channels: int, side: int, modes: int) -> Sizes:
    return Sizes(batch=batch, channels=channels, side=side, modes=modes)


PROGRAMS = [
    Program("conv", f"convolution 3 × 3 of {PICTURES}", one_size(batch=32, channels=64, side=56), SMALL, conv_inputs,
            conv, one_library=True),
]  # fmt: skip
MODELS = [
    Program("resnet_block", f"ResNet block with gradients, {PICTURES}",
            image_sizes((8, 64, 28), (32, 64, 56), (64, 256, 28)), SMALL, resnet_inputs, resnet_block,
            differing=FLIPPED),
    Program("unet_block", f"U-Net block with gradients, {PICTURES}",
            image_sizes((4, 32, 32), (16, 64, 64), (32, 128, 64)), SMALL, unet_inputs, unet_block),
    Program("diffusion", f"training step of a diffusion model with AdamW, {PICTURES}",
            image_sizes((8, 32, 32), (32, 64, 32), (64, 128, 32)), SMALL, diffusion_inputs, diffusion, state_count=2,
            checked=loss_and_mean, tolerance=2e-3),
    Program("fno", f"layer of a Fourier neural operator with gradients, {PICTURES}, {{modes}} modes",
            three_sizes(fno_sizes(4, 32, 64, 12), fno_sizes(16, 32, 128, 16), fno_sizes(16, 64, 256, 32)),
            fno_sizes(2, 4, 16, 3), fno_inputs, fno),
]  # fmt: skip
