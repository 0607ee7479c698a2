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
