// What the page shows besides the graph: flashes of updates, views and their pictures; and what it sends.
import type { PictureHeader } from "./protocol.ts";

export interface Flash {
  level: number;
  count: number; // restarts the animation
}

export interface View {
  block: string;
  output: string;
}

/** A picture that has arrived: decoded by `PictureView`. */
export interface Shown {
  header: PictureHeader;
  pixels: Uint8Array<ArrayBuffer>;
}

export type EditOperation = Record<string, unknown> & { op: string };
