// The uniforms of a part's shader, from the inputs of the block that computes its field.
import type { Input, Numeric, PinReference } from "./protocol.ts";
import type { UniformValues, ViewportShader } from "./viewport/types.ts";

export interface PartUniforms {
  values: UniformValues;
  /** Parameters that the graph computes and whose numbers the page does not know. */
  unknown: string[];
}

/** `computed` is the value of a block's output, as far as the page knows it. */
export function uniformsOf(
  shader: Pick<ViewportShader, "uniforms">,
  inputs: readonly Input[],
  computed: (...output: PinReference) => Numeric | undefined,
): PartUniforms {
  const sizes = new Map(shader.uniforms.map((uniform) => [uniform.name, uniform.size]));
  const values: Record<string, number[]> = {};
  const unknown: string[] = [];
  for (const input of inputs) {
    const value = input.from ? computed(...input.from) : input.value;
    const numbers = value === undefined ? null : numbersOf(value);
    if (numbers !== null && numbers.length === sizes.get(input.name)) values[input.name] = numbers;
    else if (input.from && input.name !== "points") unknown.push(input.name);
  }
  return { values, unknown };
}

/** The numbers in a value, in order; null if one is not finite, which no uniform can show. */
function numbersOf(value: Numeric): number[] | null {
  const numbers = [value].flat(Infinity as 1).map(Number);
  return numbers.every(Number.isFinite) ? numbers : null;
}
