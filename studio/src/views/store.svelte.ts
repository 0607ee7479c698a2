// What has arrived for views: pictures, the points of plots, windows of tables, and meshes.
import { SvelteMap } from "svelte/reactivity";
import type { BinaryHeader, MeshHeader, PictureHeader, PlotMessage, TableMessage } from "../protocol.ts";

const MAX_POINTS = 20_000; // of a plot over time; older ones are dropped

/** A picture that has arrived: decoded by `PictureView`. */
export interface Shown {
  header: PictureHeader;
  pixels: Uint8Array<ArrayBuffer>;
}

/** Columns for uPlot: positions, then one column a curve. */
export interface Plot {
  x: number[];
  curves: (number | null)[][];
  overTime: boolean;
}

export interface Mesh {
  header: MeshHeader;
  vertices: Float32Array<ArrayBuffer>;
  triangles: Uint32Array<ArrayBuffer>;
}

export class ViewStore {
  readonly pictures = new SvelteMap<string, Shown>();
  readonly plots = new SvelteMap<string, Plot>();
  readonly tables = new SvelteMap<string, TableMessage>();
  readonly meshes = new SvelteMap<string, Mesh>();

  clear(): void {
    for (const map of [this.pictures, this.plots, this.tables, this.meshes]) map.clear();
  }

  drop(name: string): void {
    for (const map of [this.pictures, this.plots, this.tables, this.meshes]) map.delete(name);
  }

  take(message: PlotMessage | TableMessage): void {
    if (message.type === "table") this.tables.set(message.view, message);
    else this.plots.set(message.view, extend(this.plots.get(message.view), message));
  }

  takeBinary(header: BinaryHeader, payload: Uint8Array<ArrayBuffer>): void {
    if (header.type === "picture") this.pictures.set(header.view, { header, pixels: payload });
    else if (header.type === "mesh") this.meshes.set(header.view, meshOf(header, payload));
  }
}

/** A plot with the points of a message. A curve over its index replaces the last one. */
export function extend(before: Plot | undefined, message: PlotMessage): Plot {
  if (message.curve) {
    const step = message.step ?? 1;
    return { x: message.curve.map((_, index) => index * step), curves: [message.curve], overTime: false };
  }
  const rows = message.values ?? [];
  const count = rows.at(-1)?.length ?? 0;
  const old = before?.overTime && before.curves.length === count ? before : { x: [], curves: Array.from({ length: count }, () => []) };
  const last = old.x.at(-1) ?? -Infinity;
  const fresh = (message.frames ?? []).flatMap((frame, index) => (frame > last && rows[index]?.length === count ? [index] : []));
  const x = [...old.x, ...fresh.map((index) => message.frames?.[index] ?? 0)].slice(-MAX_POINTS);
  const curves = old.curves.map((curve, column) =>
    [...curve, ...fresh.map((index) => rows[index]?.[column] ?? null)].slice(-MAX_POINTS),
  );
  return { x, curves, overTime: true };
}

function meshOf(header: MeshHeader, payload: Uint8Array<ArrayBuffer>): Mesh {
  const bytes = payload.slice().buffer; // aligned for the arrays
  const vertices = new Float32Array(bytes, 0, 3 * header.vertices);
  return { header, vertices, triangles: new Uint32Array(bytes, 12 * header.vertices, 3 * header.triangles) };
}
