"""Edits a particle system while it runs: emitters, forces from the gradient of an energy, and integration.

    python examples/particles.py [--backend cpu|cuda] [--frames 120] [--size 480] [--out out/particles]

Particles are rows of an append buffer, which the survivors of the last frame and the emitters write. Forces are the
`lg.grad` of an energy block: repulsion between neighbours (found with a grid), gravity, walls and round obstacles. A
script edits the running system: it changes numbers (hot), the number of obstacles (warm) and the code of the energy,
which also updates its gradient (code), and adds an emitter (cold). It reports the cost of each edit and writes PNG
files.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import livegrad as lg

CAPACITY = 2048
REPULSION_RADIUS = 0.07
WIDTH = 4 / 3  # half the width of the scene; half its height is 1
STEP = 1 / 90  # seconds
COLUMNS = 6  # x, y, their velocities, age, and a random number for the colour
OBSTACLES = np.array([[-0.45, 0.05, 0.2], [0.5, -0.15, 0.26]], np.float32)
MORE_OBSTACLES = np.array([*OBSTACLES, [0.02, 0.5, 0.16]], np.float32)


# --- blocks ----------------------------------------------------------------------------------------------------------


def pseudorandom(index: Any, tick: Any, salt: float) -> Any:
    """Returns a pseudorandom number between 0 and 1 for each index and frame."""
    mixed = lg.sin(index * 12.9898 + tick * 7.233 + salt) * 4375.5453
    return mixed - lg.floor(mixed)


def particle_rows(x: Any, y: Any, vx: Any, vy: Any, tick: Any) -> Any:
    index = lg.arange(x.shape[0], dtype=lg.float32)
    return lg.stack([x, y, vx, vy, lg.zeros_like(x), pseudorandom(index, tick, 5.0)], axis=1)


def fountain(tick, rate=3.0, speed=2.6):
    """Emits up to 16 particles per frame from below, in a fan."""
    index = lg.arange(16, dtype=lg.float32)
    angle = (pseudorandom(index, tick, 1.0) - 0.5) * 0.7
    push = speed * (0.85 + 0.3 * pseudorandom(index, tick, 2.0))
    x = (pseudorandom(index, tick, 3.0) - 0.5) * 0.16
    height = pseudorandom(index, tick, 4.0) * 0.06 - 0.97
    rows = particle_rows(x, height, push * lg.sin(angle), push * lg.cos(angle), tick)
    return index < rate, rows


def rain(tick, rate=1.0):
    """Emits up to 8 particles per frame from above, over the whole width."""
    index = lg.arange(8, dtype=lg.float32)
    x = (pseudorandom(index, tick, 7.0) - 0.5) * 2.4
    return index < rate, particle_rows(x, lg.zeros_like(index) + 0.98, 0.0 * index, 0.0 * index - 0.6, tick)


def positions(particles, count):
    """Returns the positions of particles. Unused rows are far away from all others."""
    index = lg.arange(particles.shape[0], dtype=lg.int64)
    alive = lg.reshape(index < count, (particles.shape[0], 1))
    far = lg.stack([lg.astype(index, lg.float32) + 100.0, lg.zeros(particles.shape[0], dtype=lg.float32)], axis=1)
    return lg.where(alive, particles[:, :2], far)


def repulsion(x, indices, near):
    """A soft repulsive spring between neighbours."""

    def bond(position, neighbour):
        squared = lg.sum((position - neighbour) ** 2.0, axis=-1) / REPULSION_RADIUS**2
        return lg.maximum(1.0 - squared, 0.0) ** 2.0

    return lg.sum(lg.live.fold_neighbours(bond, indices, near, x))


def penetration(x, obstacles):
    """Returns the sum of squared penetration depths into obstacles and walls."""
    offsets = lg.expand_dims(x, axis=1) - lg.expand_dims(obstacles[:, :2], axis=0)
    depths = lg.maximum(obstacles[:, 2] + 0.02 - lg.sqrt(lg.sum(offsets * offsets, axis=-1) + 1e-12), 0.0)
    walls = lg.maximum(lg.abs(x[:, 0]) - WIDTH + 0.03, 0.0)
    floor = lg.maximum(-0.97 - x[:, 1], 0.0)
    inside = lg.abs(x[:, 0]) < 50.0  # unused rows are far outside
    return lg.sum(depths**2.0) + lg.sum(lg.where(inside, walls**2.0 + floor**2.0, 0.0))


def energy(x, indices, near, obstacles, gravity=2.2, stiffness=0.035):
    """The potential energy; its negative gradient is the force."""
    return stiffness * repulsion(x, indices, near) + gravity * lg.sum(x[:, 1]) + 1500.0 * penetration(x, obstacles)


def bowl_energy(x, indices, near, obstacles, gravity=2.2, stiffness=0.035):
    """The same energy with a wavy bowl instead of gravity, for the code edit."""
    bowl = lg.where(lg.abs(x[:, 0]) < 50.0, x[:, 0] ** 2.0 + 1.6 * x[:, 1] ** 2.0, 0.0)
    waves = lg.sin(7.0 * x[:, 0]) * lg.cos(5.0 * x[:, 1])
    return (
        stiffness * repulsion(x, indices, near)
        + gravity * lg.sum(bowl + 0.16 * waves)
        + 1500.0 * penetration(x, obstacles)
    )


def move(particles, gradient, drag=0.35):
    """Integrates velocities, positions and ages over one time step."""
    velocity = (particles[:, 2:4] - STEP * gradient) * (1.0 - drag * STEP)
    position = particles[:, :2] + STEP * velocity
    return lg.concat([position, velocity, particles[:, 4:5] + STEP, particles[:, 5:]], axis=1)


def survivors(particles, alive, life=3.6):
    """Selects the particles that are alive, not too old, and inside the scene."""
    index = lg.arange(particles.shape[0], dtype=lg.int64)
    valid = lg.logical_and(index < alive, particles[:, 4] < life)
    return lg.logical_and(valid, lg.abs(particles[:, 1]) < 1.3), particles


# --- the graph -------------------------------------------------------------------------------------------------------


@dataclass
class System:
    """A running engine and the blocks that the script edits."""

    engine: lg.Engine
    blocks: dict[str, Any]
    obstacles: np.ndarray

    def __getitem__(self, name: str) -> Any:
        return self.blocks[name]


def build(backend: str) -> System:
    """Creates and connects all blocks."""
    engine = lg.Engine(backend)
    obstacle_rows = lg.ir.types.Tensor(lg.ir.types.f32, (lg.ir.Dimension.symbol("m"), 3))
    new_blocks = [
        lg.State("particles", np.zeros((CAPACITY, COLUMNS), np.float32)),
        lg.State("count", np.int64(0)),
        lg.State("tick", np.float32(0)),
        lg.block(lambda tick: tick + 1.0, name="clock"),
        lg.block(positions, name="positions"),
        lg.live.neighbour_block(capacity=48, name="near"),
        lg.block(energy, name="energy", inputs={"obstacles": obstacle_rows}),
        lg.block(move, name="move"),
        lg.live.append_block(survivors, capacity=CAPACITY, name="survivors"),
        lg.live.append_block(fountain, capacity=16, name="fountain"),
    ]
    blocks = {block.name: engine.add(block) for block in new_blocks}
    system = System(engine, blocks, OBSTACLES)
    blocks["force"] = engine.add(lg.grad(of=blocks["energy"], by=[blocks["energy"]["x"]], name="force"))
    connect(system, "particles", "positions.particles", "move.particles")
    connect(system, "count", "positions.count", "survivors.alive")
    connect(system, "tick", "clock.tick", "fountain.tick")
    connect(system, "clock", "tick.next")
    connect(system, "positions", "near.positions", "energy.x")
    engine.set(blocks["near"]["radius"], REPULSION_RADIUS)
    connect(system, "near.indices", "energy.indices")
    connect(system, "near.count", "energy.near")
    set_obstacles(system, OBSTACLES)
    connect(system, "force.x", "move.gradient")
    connect(system, "move", "survivors.particles")
    connect_pool(system, "survivors", "fountain")
    return system


def set_obstacles(system: System, rows: np.ndarray) -> None:
    """Sets the obstacles, as rows of x, y and radius. Their number may change without compiling."""
    system.obstacles = rows
    system.engine.set(system["energy"]["obstacles"], rows)


def connect(system: System, source: str, *targets: str) -> None:
    """Connects pins by their names."""
    block_name, _, pin = source.partition(".")
    output = system[block_name][pin] if pin else system[block_name]
    for target in targets:
        target_name, pin = target.split(".")
        system.engine.connect(output, system[target_name][pin])


def connect_pool(system: System, *writers: str) -> None:
    """Replaces the append buffer with a buffer that these blocks write."""
    if "pool" in system.blocks:
        system.engine.remove(system["pool"])
    system.blocks["pool"] = system.engine.add(lg.live.AppendBuffer("pool", capacity=CAPACITY, writers=writers))
    for writer in writers:
        connect(system, f"{writer}.values", f"pool.{writer}")
    connect(system, "pool.values", "particles.next")
    connect(system, "pool.count", "count.next")


# --- the script ------------------------------------------------------------------------------------------------------


def add_rain(system: System) -> None:
    """Adds an emitter. The graph is rebuilt, and all blocks keep their values."""
    system.blocks["rain"] = system.engine.add(lg.live.append_block(rain, capacity=8, name="rain"))
    connect(system, "tick", "rain.tick")
    connect_pool(system, "survivors", "fountain", "rain")


Edit = tuple[float, str, Callable[[System], Any]]
SCRIPT: list[Edit] = [
    (0.25, "a stronger fountain", lambda s: (s.engine.set(s["fountain"]["rate"], 5.0),
                                                         s.engine.set(s["fountain"]["speed"], 2.9))),
    (0.40, "a third obstacle", lambda s: set_obstacles(s, MORE_OBSTACLES)),
    (0.55, "rain", add_rain),
    (0.75, "a bowl with waves instead of gravity", lambda s: lg.live.edit(s.engine, s["energy"], bowl_energy)),
]  # fmt: skip


def describe_edit(frame: lg.live.Frame, label: str, seconds: float) -> str:
    levels = ", ".join(f"{change.step} {change.level.name.lower()}" for change in list(frame.changes.values())[:8])
    more = f" and {len(frame.changes) - 8} more" if len(frame.changes) > 8 else ""
    return f"frame {frame.number:4}: {label}: {frame.level.name} in {1e3 * seconds:.1f} ms ({levels}{more})"


# --- pictures --------------------------------------------------------------------------------------------------------


class Canvas:
    """Draws particles with light trails that fade."""

    def __init__(self, size: int) -> None:
        self.height, self.width = size * 3 // 4, size
        y, x = np.mgrid[: self.height, : self.width]
        self.x = ((x + 0.5) / self.width * 2 - 1) * WIDTH
        self.y = 1 - (y + 0.5) / self.height * 2
        self.light = np.zeros((self.height, self.width, 3), np.float32)
        offsets = np.arange(-6, 7)
        self.offsets = np.stack(np.meshgrid(offsets, offsets, indexing="ij"), -1).reshape(-1, 2)

    def draw(self, particles: np.ndarray, obstacles: np.ndarray) -> np.ndarray:
        """Returns the next picture."""
        self.light *= 0.72
        self._add_glow(particles)
        return np.clip(self._scene(obstacles), 0, 1)

    def _add_glow(self, particles: np.ndarray) -> None:
        pixel = self.width / (2 * WIDTH)
        middle = np.stack([(1 - particles[:, 1]) * pixel, (particles[:, 0] + WIDTH) * pixel], -1)
        cells = np.floor(middle).astype(int)[:, None, :] + self.offsets
        squared = np.sum((cells + 0.5 - middle[:, None, :]) ** 2, -1) / (self.width / 480) ** 2
        light = np.exp(-squared / 2.8) + 0.07 * np.exp(-squared / 16)
        speed = np.clip(np.hypot(particles[:, 2], particles[:, 3]) / 2.4, 0, 1)[:, None]
        slow, fast = np.array([0.10, 0.35, 1.0]), np.array([1.0, 0.55, 0.16])
        colours = (slow * (1 - speed) + fast * speed) * (0.75 + 0.5 * particles[:, 5:6])
        youth = np.exp(-4 * particles[:, 4:5])
        colours = (colours + youth * np.array([0.5, 0.5, 0.4])) * np.clip((3.6 - particles[:, 4:5]) / 0.6, 0, 1)
        inside = np.all((cells >= 0) & (cells < (self.height, self.width)), -1)
        flat = (cells[..., 0] * self.width + cells[..., 1])[inside]
        for channel in range(3):
            amounts = (light * colours[:, channel : channel + 1])[inside]
            channel_light = np.bincount(flat, amounts, self.height * self.width).reshape(self.height, self.width)
            self.light[..., channel] += 0.8 * channel_light

    def _scene(self, obstacles: np.ndarray) -> np.ndarray:
        shade = 0.5 + 0.5 * self.y
        picture = np.stack([0.03 + 0.02 * shade, 0.035 + 0.035 * shade, 0.07 + 0.08 * shade], -1)
        picture = picture + 1 - np.exp(-1.15 * self.light)
        near_light = box_blur(1 - np.exp(-self.light), self.width // 24)
        for x, y, radius in obstacles:
            u, v = (self.x - x) / radius, (self.y - y) / radius
            distance = np.hypot(u, v)
            cover = np.clip((1 - distance) * radius * self.width / (2 * WIDTH) + 0.5, 0, 1)[..., None]
            height = np.sqrt(np.clip(1 - distance**2, 0, 1))
            lit = np.clip(0.5 * height - 0.35 * u + 0.6 * v, 0, 1)
            shine = np.clip(0.75 * height - 0.35 * u + 0.55 * v, 0, 1) ** 24
            rim = 0.22 * np.clip(distance, 0, 1) ** 6
            glow = 0.5 * near_light * np.clip(distance, 0, 1)[..., None] ** 3
            colour = (0.07 + 0.32 * lit + rim + 0.35 * shine)[..., None] * np.array([0.8, 0.9, 1.0]) + glow
            picture = picture * (1 - cover) + colour * cover
        return picture


def box_blur(picture: np.ndarray, radius: int) -> np.ndarray:
    """Applies a box filter twice in each direction."""
    for axis in (0, 1, 0, 1):
        sums = np.cumsum(
            np.pad(picture, [(radius + 1, radius) if other == axis else (0, 0) for other in range(3)]), axis
        )
        ends = np.take(sums, range(2 * radius + 1, sums.shape[axis]), axis)
        picture = (ends - np.take(sums, range(sums.shape[axis] - 2 * radius - 1), axis)) / (2 * radius + 1)
    return picture


# --- running ---------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> System:
    parser = argparse.ArgumentParser(description="A particle system that is edited while it runs.")
    parser.add_argument("--backend", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--frames", type=int, default=120, help="number of pictures; each is three frames of the engine"
    )
    parser.add_argument("--size", type=int, default=480, help="width in pixels")
    parser.add_argument("--out", type=Path, default=Path("out/particles"))
    options = parser.parse_args(arguments)
    system, canvas = build(options.backend), Canvas(options.size)
    options.out.mkdir(parents=True, exist_ok=True)
    due = [(int(fraction * options.frames), label, action) for fraction, label, action in SCRIPT]
    pictures, seconds, explanation, count = [], [], "", 0
    for index in range(options.frames):
        edits = [(label, action) for start_index, label, action in due if start_index == index]
        for _, action in edits:
            action(system)
        for substep in range(3):
            start = perf_counter()
            frame = system.engine.step()
            if not frame.ok:
                raise SystemExit(system.engine.explain())
            count = int(system.engine.read(system["count"]))
            seconds.append(perf_counter() - start)
            if substep == 0 and (edits or index == 0):
                label = "; ".join(edit_label for edit_label, _ in edits) or "first frame"
                print(describe_edit(frame, label, seconds[-1]))
                explanation = system.engine.explain()
        rows = system.engine.read(system["particles"])[:count]
        pictures.append(canvas.draw(rows, system.obstacles))
        lg.save_png(pictures[-1], options.out / f"frame{index:03}.png")
    lg.save_animation(pictures, options.out / "particles.png", frames_per_second=24)
    print(f"\n{explanation}\n")
    middle = 1e3 * float(np.median(seconds))
    print(f"{len(seconds)} frames of {system.engine.executor.name}, {count} particles at the end, {middle:.2f} ms each")
    print(f"{options.frames} pictures and the animation particles.png in {options.out}")
    return system


if __name__ == "__main__":
    main()
