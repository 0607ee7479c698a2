// What a chosen output depends on: its slopes, and pulling and fitting it. The server computes; see tools/studio/tuning.
import { SvelteSet } from "svelte/reactivity";
import type { Numeric, PinReference, Problem } from "./protocol.ts";

/** An output, an element of it (without an index, the mean), or a point of the surface. */
export type TargetRequest =
  | { pin: PinReference; index?: number[] | null; frames?: number }
  | { point: [number, number, number] };

export interface Target {
  label: string;
  pin?: PinReference;
  index?: number[] | null;
  frames?: number;
  point?: [number, number, number];
}

export interface Fit {
  state: "running" | "paused" | "done";
  steps: number;
  stride: number; // steps between two points of the curve
  losses: Numeric[];
}

export interface TuningState {
  target: Target | null;
  value: Numeric | null;
  slopes: Record<string, Numeric>; // by slider
  wires: Record<string, Numeric>; // by the input that the wire feeds
  problem: Problem | null;
  pinned: string[];
  pulling: boolean;
  fit: Fit | null;
  presets: string[];
  compared: Slot | null;
  animations: Record<string, Animation>; // by slider
}

export type Slot = "A" | "B";

export interface Animation {
  shape: "wave" | "ramp" | "bounce";
  low: number;
  high: number;
  period: number; // seconds
}

export const keyOf = (pin: PinReference): string => pin.join(".");

type Message = Record<string, unknown>;

export class Tuning {
  target: Target | null = $state.raw(null);
  value: Numeric | null = $state.raw(null);
  slopes: Record<string, Numeric> = $state.raw({});
  wires: Record<string, Numeric> = $state.raw({});
  problem: Problem | null = $state.raw(null);
  fit: Fit | null = $state.raw(null);
  pulling = $state(false);
  presets: string[] = $state.raw([]);
  compared: Slot | null = $state(null);
  animations: Record<string, Animation> = $state.raw({});
  readonly pinned = new SvelteSet<string>();

  private moving: number[] | null = null; // the newest value of a pull that is not sent yet
  private isOpen = false; // a pull of this page

  constructor(
    private readonly send: (message: Message) => void,
    private readonly ask: (message: Message) => Promise<unknown>,
  ) {}

  take(state: TuningState): void {
    this.target = state.target;
    this.value = state.value;
    this.slopes = state.slopes;
    this.wires = state.wires;
    this.problem = state.problem;
    this.fit = state.fit;
    this.pulling = state.pulling;
    this.presets = state.presets;
    this.compared = state.compared;
    this.animations = state.animations;
    for (const key of this.pinned) if (!state.pinned.includes(key)) this.pinned.delete(key);
    for (const key of state.pinned) this.pinned.add(key);
  }

  clear(): void {
    this.take({
      target: null, value: null, slopes: {}, wires: {}, problem: null, fit: null, pulling: false, pinned: [],
      presets: [], compared: null, animations: {},
    });
    this.isOpen = false;
    this.moving = null;
  }

  isTarget(pin: PinReference): boolean {
    return this.target?.pin !== undefined && keyOf(this.target.pin) === keyOf(pin);
  }

  choose(of: TargetRequest | null): void {
    void this.ask({ type: "target", of });
  }

  togglePinned(pin: PinReference): void {
    void this.ask({ type: "pin", pin, pinned: !this.pinned.has(keyOf(pin)) });
  }

  control(fit: "start" | "pause" | "continue" | "stop" | "cancel", goal?: "minimise" | "maximise"): void {
    void this.ask({ type: "fit", do: fit, ...(goal ? { goal } : {}) });
  }

  preset(action: "save" | "apply" | "remove", name: string): void {
    void this.ask({ type: "preset", do: action, name });
  }

  compare(slot: Slot | null): void {
    void this.ask({ type: "compare", slot });
  }

  animate(pin: PinReference, animation: Animation | null): void {
    void this.ask({ type: "animate", pin, animation });
  }

  /** Moves the chosen value. The first movement begins a pull; the newest one of a frame is sent. */
  pullTo(to: number[]): void {
    if (!this.isOpen) {
      this.isOpen = true;
      void this.ask({ type: "pull", do: "begin" });
    }
    if (this.moving === null) requestAnimationFrame(() => this.flush());
    this.moving = to;
  }

  /** Ends a pull: its movements are one step of undo, or none. */
  endPull(how: "commit" | "cancel" = "commit"): void {
    if (!this.isOpen) return;
    if (how === "commit") this.flush();
    this.moving = null;
    this.isOpen = false;
    void this.ask({ type: "pull", do: how });
  }

  private flush(): void {
    if (this.moving !== null && this.isOpen) this.send({ type: "pull", do: "move", to: this.moving });
    this.moving = null;
  }
}

/** How far a slider of this range moves the output, relative to the most influential one: -1 to 1. */
export function relativeSlope(slope: Numeric | undefined, range: number, largest: number): number {
  const effect = strongest(slope) * range;
  return largest > 0 && Number.isFinite(effect) ? effect / largest : 0;
}

/** The number of largest magnitude in a slope. */
export function strongest(slope: Numeric | undefined): number {
  if (slope === undefined) return 0;
  const numbers = [slope].flat(Infinity as 1).map(Number).filter(Number.isFinite);
  return numbers.reduce((found, number) => (Math.abs(number) > Math.abs(found) ? number : found), 0);
}
