// The distance between picked points, as text for the page.
import type { PickedPoint, Vec3 } from "./types.ts";
import { length, subtract } from "./vectors.ts";

/** The distance of the last two points; null with fewer. */
export function distanceOf(points: readonly PickedPoint[]): { length: number; along: Vec3 } | null {
  const [first, second] = points.slice(-2);
  if (!first || !second) return null;
  const along = subtract(second.point, first.point);
  return { length: length(along), along };
}
