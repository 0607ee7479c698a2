// Where points in space are on the screen, in CSS pixels from the upper left corner.
import { axesOf } from "./camera.ts";
import type { Camera, Vec3 } from "./types.ts";
import { add, dot, scale, subtract } from "./vectors.ts";

export interface ScreenPoint {
  readonly x: number;
  readonly y: number;
}

export function project(camera: Camera, width: number, height: number, point: Vec3): ScreenPoint {
  const axes = axesOf(camera.direction);
  const offset = subtract(point, camera.target);
  const pixel = camera.height / height;
  return { x: width / 2 + dot(offset, axes.right) / pixel, y: height / 2 - dot(offset, axes.up) / pixel };
}

/** Moves a point by pixels to the right and down, in the plane of the screen. */
export function moveOnScreen(camera: Camera, height: number, point: Vec3, right: number, down: number): Vec3 {
  const axes = axesOf(camera.direction);
  const pixel = camera.height / height;
  return add(point, add(scale(axes.right, right * pixel), scale(axes.up, -down * pixel)));
}
