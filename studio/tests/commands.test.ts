import assert from "node:assert/strict";
import { test } from "node:test";
import { keysOf, readable } from "../src/editing/commands.ts";

const event = (key: string, held: Partial<Record<"ctrlKey" | "metaKey" | "shiftKey" | "altKey", boolean>> = {}) => ({
  key, ctrlKey: false, metaKey: false, shiftKey: false, altKey: false, ...held,
});

test("keys have one form", () => {
  assert.equal(keysOf(event("z", { ctrlKey: true })), "Ctrl+Z");
  assert.equal(keysOf(event("Z", { metaKey: true, shiftKey: true })), "Ctrl+Shift+Z");
  assert.equal(keysOf(event("?", { shiftKey: true })), "?");
  assert.equal(keysOf(event(" ")), "Space");
  assert.equal(keysOf(event("ArrowLeft", { shiftKey: true })), "Shift+ArrowLeft");
});

test("keys are readable", () => {
  assert.equal(readable("Ctrl+Shift+ArrowUp"), "Ctrl Shift ↑");
});
