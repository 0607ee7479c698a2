import assert from "node:assert/strict";
import { test } from "node:test";
import { uniformsOf } from "../src/part-uniforms.ts";
import type { Input } from "../src/protocol.ts";

const uniform = (name: string, size: number) =>
  ({ name, identifier: name, kind: "float", size, offset: 0, value: null }) as const;
const shader = { uniforms: [uniform("radius", 1), uniform("size", 3), uniform("tilt", 1)] };

test("numbers of inputs and of blocks that feed them become uniforms", () => {
  const inputs: Input[] = [
    { name: "points", source: "edge", from: ["b1", "result"] },
    { name: "radius", source: "value", value: 0.5 },
    { name: "size", source: "value", value: [1, 2, 3] },
    { name: "tilt", source: "edge", from: ["b2", "result"] },
  ];
  const found = uniformsOf(shader, inputs, (block) => (block === "b2" ? 0.25 : undefined));
  assert.deepEqual(found, { values: { radius: [0.5], size: [1, 2, 3], tilt: [0.25] }, unknown: [] });
});

test("what the page does not know is named, and what does not fit is left alone", () => {
  const inputs: Input[] = [
    { name: "radius", source: "value", value: "NaN" },
    { name: "size", source: "value", value: [1, 2] },
    { name: "tilt", source: "edge", from: ["b2", "result"] },
  ];
  assert.deepEqual(uniformsOf(shader, inputs, () => undefined), { values: {}, unknown: ["tilt"] });
});
