// What the page shows besides the graph: flashes of updates and views; and what it sends.
import type { ViewKind } from "./protocol.ts";

export interface Flash {
  level: number;
  count: number; // restarts the animation
}

export interface View {
  block: string;
  output: string;
  kind: ViewKind;
  at: [row: number, column: number]; // of a table
  wide: boolean; // beside the graph
}

export type EditOperation = Record<string, unknown> & { op: string };

/** Which pins refuse a wire that is dragged, by `block.pin` with the reason, and which new blocks fit. */
export interface Fits {
  type: "source" | "target"; // the pin from which it is dragged
  refused: Record<string, string>;
  entries: string[] | null; // null: not known yet
}
