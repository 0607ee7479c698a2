// How a value can be shown: which views suit it, and which one comes first.
import type { Summary, ViewKind } from "../protocol.ts";

const PICTURES = /^(bool|u?int|float)/;

/** The views that suit a value, the best first; none for values without numbers. */
export function kindsOf(summary: Summary | null | undefined): ViewKind[] {
  if (!summary || !PICTURES.test(summary.dtype)) return [];
  const { shape } = summary;
  const kinds: ViewKind[] = [];
  if (summary.picture) kinds.push("picture");
  if (isSpace(summary)) kinds.push("mesh");
  kinds.push("plot");
  if (shape.length > 0) kinds.push("table");
  return kinds;
}

/** Points (n, 3) or triangles (n, 3, 3) of space; three numbers alone are none. */
function isSpace({ shape, dtype }: Summary): boolean {
  const isTriangles = shape.length === 3 && shape[1] === 3;
  return dtype.startsWith("float") && shape.at(-1) === 3 && (isTriangles || (shape.length === 2 && (shape[0] ?? 0) > 1));
}

export const KIND_NAMES: Readonly<Record<ViewKind, string>> = {
  picture: "picture",
  plot: "plot",
  table: "table",
  mesh: "3D view",
};
