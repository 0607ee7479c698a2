// The orthographic camera of a viewport: its axes, and orbit, pan, zoom and fit. Cameras are values.
import type { Camera, Vec3 } from "./types.ts";
import { add, cross, dot, normalize, scale, subtract } from "./vectors.ts";

export interface Axes {
  readonly right: Vec3;
  readonly up: Vec3;
  readonly forward: Vec3;
}

/** The axes of a view along a direction, with z up. Except for views straight up or down, those of `lg.render`. */
export function axesOf(direction: Vec3): Axes {
  const forward = normalize(direction);
  const upwards: Vec3 = Math.abs(forward[2]) < 0.9999 ? [0, 0, 1] : [0, 1, 0];
  const right = normalize(cross(forward, upwards));
  return { right, up: cross(right, forward), forward };
}

/** Turns the camera around its target by angles; it stays upright. */
export function orbit(camera: Camera, around: number, over: number): Camera {
  const forward = normalize(camera.direction);
  const longitude = Math.atan2(forward[1], forward[0]) + around;
  const limit = Math.PI / 2 - 0.02;
  const latitude = Math.max(-limit, Math.min(limit, Math.asin(Math.max(-1, Math.min(1, forward[2]))) + over));
  const flat = Math.cos(latitude);
  return {
    ...camera,
    direction: [flat * Math.cos(longitude), flat * Math.sin(longitude), Math.sin(latitude)],
  };
}

/** Moves the target by fractions of the height of the picture, to the right and up. */
export function pan(camera: Camera, right: number, up: number): Camera {
  const axes = axesOf(camera.direction);
  const moved = add(scale(axes.right, right * camera.height), scale(axes.up, up * camera.height));
  return { ...camera, target: add(camera.target, moved) };
}

/** Scales the picture around a point of it, in fractions of its height from the middle. */
export function zoom(camera: Camera, factor: number, right = 0, up = 0): Camera {
  const moved = pan(camera, right * (1 - factor), up * (1 - factor));
  return { ...moved, height: camera.height * factor };
}

/** Looks at a box from a direction; the picture has an aspect of width to height. */
export function fitBox(low: Vec3, high: Vec3, direction: Vec3, aspect: number): Camera {
  const axes = axesOf(direction);
  const half = scale(subtract(high, low), 0.5);
  const reach = (axis: Vec3) => dot(half, [Math.abs(axis[0]), Math.abs(axis[1]), Math.abs(axis[2])]);
  const height = 2.1 * Math.max(reach(axes.up), reach(axes.right) / aspect);
  return { target: add(low, half), direction, height: height > 0 ? height : 1 };
}
