// Numbers as text: short forms for the page, and arithmetic such as `2*pi/5` in number fields.
import type { Numeric, Summary } from "./protocol.ts";

/** A number with at most `digits` significant digits. */
export function shorten(value: Numeric | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return `[${value.map((item) => shorten(item, 3)).join(", ")}]`;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

/** An array in one line: its numbers if it is small, otherwise shape and range. */
export function describe(summary: Summary): string {
  if (summary.value !== undefined) return shorten(summary.value);
  return summary.min === undefined ? shapeOf(summary) : `${shorten(summary.min, 3)} … ${shorten(summary.max, 3)}`;
}

const SHORT_TYPES: Record<string, string> = { float: "f", int: "i", uint: "u", complex: "c" };

/** Shape and element type: `384×384×3 f32`. */
export function shapeOf(summary: Summary): string {
  const type = summary.dtype.replace(/^(float|int|uint|complex)(?=\d)/, (name) => SHORT_TYPES[name] ?? name);
  return summary.shape.length === 0 ? type : `${summary.shape.join("×")} ${type}`;
}

export function seconds(time: number): string {
  if (time < 1e-3) return `${(1e6 * time).toFixed(0)} µs`;
  return time < 1 ? `${(1e3 * time).toFixed(1)} ms` : `${time.toFixed(2)} s`;
}

const CONSTANTS = new Map(Object.entries({ pi: Math.PI, tau: 2 * Math.PI, e: Math.E, inf: Infinity, nan: NaN }));
const { sin, cos, tan, sqrt, exp, log, abs } = Math;
const FUNCTIONS = new Map(Object.entries({ sin, cos, tan, sqrt, exp, log, abs }));

/** The value of typed arithmetic; null if the text is not arithmetic. */
export function evaluate(text: string): number | null {
  const tokens = text.toLowerCase().match(/\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|[a-z]+|\*\*|[-+*/%^()]|\S/g) ?? [];
  let position = 0;
  const peek = () => tokens[position];
  const take = (token: string) => peek() === token && ++position > 0;

  function sum(): number {
    let value = product();
    for (;;) {
      if (take("+")) value += product();
      else if (take("-")) value -= product();
      else return value;
    }
  }
  function product(): number {
    let value = signed();
    for (;;) {
      if (take("*")) value *= signed();
      else if (take("/")) value /= signed();
      else if (take("%")) value %= signed();
      else return value;
    }
  }
  function signed(): number {
    if (take("-")) return -signed();
    if (take("+")) return signed();
    const base = atom();
    return take("**") || take("^") ? base ** signed() : base;
  }
  function atom(): number {
    if (take("(")) {
      const value = sum();
      if (!take(")")) throw new SyntaxError("missing )");
      return value;
    }
    const token = tokens[position++];
    if (token === undefined) throw new SyntaxError("missing number");
    const constant = CONSTANTS.get(token);
    if (constant !== undefined) return constant;
    const call = FUNCTIONS.get(token);
    if (call !== undefined && peek() === "(") return call(atom());
    if (!/^[\d.]/.test(token)) throw new SyntaxError(`unexpected ${token}`);
    return Number(token);
  }

  try {
    const value = sum();
    return position === tokens.length ? value : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/** A hexadecimal colour of red, green and blue from 0 to 1. */
export function toHex(color: Numeric): string {
  const channels = Array.isArray(color) ? color.slice(0, 3) : [0, 0, 0];
  const levels = channels.map((value) => Math.round(255 * Math.min(1, Math.max(0, Number(value) || 0))));
  return `#${levels.map((level) => level.toString(16).padStart(2, "0")).join("")}`;
}

export function fromHex(hex: string): number[] {
  return [1, 3, 5].map((start) => Math.round((parseInt(hex.slice(start, start + 2), 16) / 255) * 1000) / 1000);
}
