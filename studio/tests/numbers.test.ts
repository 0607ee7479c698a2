import assert from "node:assert/strict";
import { test } from "node:test";
import { describe, evaluate, fromHex, seconds, shapeOf, shorten, toHex } from "../src/numbers.ts";

test("typed arithmetic has the usual precedence", () => {
  assert.equal(evaluate("2*pi/5"), (2 * Math.PI) / 5);
  assert.equal(evaluate("-2**2"), -4);
  assert.equal(evaluate("2**-1"), 0.5);
  assert.equal(evaluate("2**3**2"), 512);
  assert.equal(evaluate("(1+2)*3 - 4 % 3"), 8);
  assert.equal(evaluate("sqrt(16) + .5"), 4.5);
  assert.equal(evaluate("1e-3"), 0.001);
});

test("text that is not arithmetic has no value", () => {
  for (const text of ["", "1 2", "2*", "alert(1)", "(1", "1)", "constructor", "x", "__proto__"]) assert.equal(evaluate(text), null, text);
});

test("numbers are shown short", () => {
  assert.equal(shorten(0.1 + 0.2), "0.3");
  assert.equal(shorten(123456), "123456");
  assert.equal(shorten(1.5e9), "1.50e9");
  assert.equal(shorten(0), "0");
  assert.equal(shorten("NaN"), "NaN");
  assert.equal(shorten([1, 0.25]), "[1, 0.25]");
  assert.equal(shorten(null), "");
});

test("arrays are shown as shape and range", () => {
  const summary = { shape: [384, 384, 3], dtype: "float32", min: 0, max: 1 };
  assert.equal(shapeOf(summary), "384×384×3 f32");
  assert.equal(describe(summary), "0 … 1");
  assert.equal(shapeOf({ shape: [], dtype: "bool" }), "bool");
});

test("colours round-trip through hexadecimal", () => {
  assert.equal(toHex([1, 0.5, 0]), "#ff8000");
  assert.deepEqual(fromHex("#ff0000"), [1, 0, 0]);
  assert.equal(toHex(fromHex("#2457c5")), "#2457c5");
  assert.equal(toHex(["NaN", 2, -1]), "#00ff00");
});

test("times have units", () => {
  assert.deepEqual([seconds(2e-6), seconds(0.0123), seconds(2)], ["2 µs", "12.3 ms", "2.00 s"]);
});
