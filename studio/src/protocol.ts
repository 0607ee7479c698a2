// The messages between the page and the engine thread, as src/livegrad/tools/studio writes and reads them.
import type { TuningState } from "./tuning.svelte.ts";
import type { ViewportShader } from "./viewport/index.ts";

export type PinReference = [block: string, pin: string];
export type Numeric = number | boolean | string | Numeric[]; // text: NaN, Infinity, -Infinity, complex numbers

export interface Control {
  kind: "number" | "integer" | "angle" | "boolean" | "choice" | "vector" | "colour" | "none";
  default: Numeric | null;
  low: number;
  high: number;
  step: number | null;
  unit: string;
  label: string;
  group: string;
  choices: [label: string, value: number | boolean][];
}

export interface Input {
  name: string;
  source: "edge" | "value" | "default" | "bound" | "open";
  from?: PinReference;
  as?: string; // the name under which the block around it exposes this input
  value?: Numeric;
  text?: string; // describes a value that is too large to edit
  control?: Control;
}

export interface Block {
  graph: string | null;
  name: string;
  kind: string;
  at: [number, number];
  inputs: Input[];
  outputs: string[];
  inner: { label: string; graph: string }[];
}

export interface GraphEntry {
  label: string;
  parent: string | null;
}

export interface Picture {
  width: number;
  height: number;
  rgba: string;
}

export interface Summary {
  shape: number[];
  dtype: string;
  value?: Numeric;
  min?: Numeric;
  max?: Numeric;
  mean?: Numeric;
  nans?: number;
  infinities?: number;
  bins?: number[];
  picture?: Picture;
}

export interface Problem {
  message: string;
  where: string | null;
  expected: string | null;
  found: string | null;
  help: string | null;
  line: number;
  block?: string;
  name?: string;
  pin?: string | null;
}

export interface ClockState {
  playing: boolean;
  time: number;
  rate: number;
  speed: number; // seconds of its time in a second
}

export interface Frame extends ClockState {
  number: number;
  level: string;
  ran: Record<string, number>;
  seconds: Record<string, number>;
  problems: Problem[];
  warnings: string[];
}

/** What undo and redo would do; null: nothing. */
export interface History {
  undo: string | null;
  redo: string | null;
  document?: { name: string; state: "saved" | "edited" | "drafted" | "failed"; problem: string; draft: boolean };
}

/** The 3D view of a part: its shader, a problem, or neither while the server builds it. `block` has the parameters. */
export interface Part {
  block: string;
  shader: ViewportShader | null;
  parameters: string[]; // whose slope the surface can show
  problem: Problem | null;
}

export type Operation = { op: "put"; id: string; value: Block | GraphEntry } | { op: "remove"; id: string };

export interface CatalogueEntry {
  name: string;
  group: string;
  help: string;
  formula: string;
}

export interface Example {
  name: string;
  title: string;
  about: string;
}

export type Permission = "view" | "tune" | "edit" | "code";

export type ViewKind = "picture" | "plot" | "table" | "mesh";

/** New points of a plot over frames, or the curve of an array over its index, which has every `step`-th number. */
export interface PlotMessage {
  type: "plot";
  view: string;
  frame: number;
  shape: number[];
  frames?: number[];
  values?: (number | null)[][];
  curve?: (number | null)[];
  step?: number;
}

/** A window of an array whose first row and column are `at`. */
export interface TableMessage {
  type: "table";
  view: string;
  frame: number;
  shape: number[];
  dtype: string;
  rows: number;
  columns: number;
  at: [number, number];
  cells: Numeric[];
}

export type ServerMessage =
  | { type: "welcome"; page: number; permission: Permission; catalogue: CatalogueEntry[]; gallery: Example[] }
  | { type: "gallery"; untrusted: { name: string; functions: Record<string, string> } | null }
  | {
      type: "snapshot";
      title: string;
      graph: string;
      entries: Record<string, Block | GraphEntry>;
      frame: Frame;
      drives: boolean;
      error: Problem | null;
      history: History;
      part: Part | null;
    }
  | {
      type: "update";
      ops: Operation[];
      values: Record<string, Record<string, Summary | null>>;
      frame?: Frame;
      reason?: string;
      history?: History;
      part?: Part;
      tuning?: TuningState;
      steepness?: number; // the bound of the gradient of the part, for its present numbers
    }
  | PlotMessage
  | TableMessage
  | ({ type: "clock" } & ClockState)
  | { type: "stopped"; error: Problem }
  | { type: "busy"; seconds: number } // a frame takes long; 0: it has ended
  | ({ type: "done"; id: number } & Record<string, unknown>)
  | { type: "rejected"; id: number | null; error: Problem };

export interface PictureHeader {
  type: "picture";
  view: string;
  frame: number;
  width: number;
  height: number;
  format: "rgba" | "jpeg";
}

export interface MeshHeader {
  type: "mesh";
  view: string;
  frame: number;
  vertices: number;
  triangles: number;
}

/** A file that the page asked for, to download. */
export interface FileHeader {
  type: "file";
  id: number;
  name: string;
  media: string;
}

export type BinaryHeader = PictureHeader | MeshHeader | FileHeader;

export function isBlock(entry: Block | GraphEntry): entry is Block {
  return "inputs" in entry;
}
