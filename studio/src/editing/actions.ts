// Edits of the selected blocks: copies, groups, bridges, sliders, alignment. Each is one entry of the history.
import type { PinReference } from "../protocol.ts";
import type { EditOperation } from "../shown.ts";
import type { Studio } from "../state.svelte.ts";

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

export type Edge = "left" | "right" | "top" | "bottom";

/** What the canvas knows: where nodes are, and where the pointer is. */
export interface Geometry {
  rectangles(): Map<string, Rectangle>;
  pointer(): [number, number];
}

/** Python in a text that the Studio did not write; it runs when the user agrees. */
export interface Untrusted {
  functions: Record<string, string>;
  agree: () => void;
}

const COPY_DISTANCE = 36;
const NUDGE = 10;

export class Actions {
  private copied = ""; // for pages that may not use the clipboard of the system

  constructor(
    private readonly studio: Studio,
    private readonly geometry: () => Geometry | undefined,
  ) {}

  get chosen(): string[] {
    return [...this.studio.chosen].filter((id) => this.studio.blocks.has(id));
  }

  async copy(): Promise<boolean> {
    const blocks = this.chosen;
    if (blocks.length === 0) return false;
    const answer = await this.studio.request({ type: "copy", blocks });
    if (!answer) return false;
    this.copied = String(answer["text"]);
    try {
      await navigator.clipboard.writeText(this.copied);
    } catch {
      // Browsers allow it only to secure pages that have the focus: the copy can be pasted in this page.
    }
    this.studio.tell(`Copied ${count(blocks.length)}.`);
    return true;
  }

  async cut(): Promise<void> {
    const blocks = this.chosen;
    if (await this.copy()) await this.studio.edit(...blocks.map((block) => ({ op: "remove", block })));
  }

  async paste(text?: string): Promise<void> {
    const pasted = text ?? (await this.clipboardText());
    if (pasted !== "") await this.pasteText(pasted, false);
  }

  private async clipboardText(): Promise<string> {
    try {
      return await navigator.clipboard.readText();
    } catch {
      return this.copied;
    }
  }

  private async pasteText(text: string, trust: boolean): Promise<void> {
    const at = this.geometry()?.pointer() ?? [0, 0];
    const results = await this.studio.edit({ op: "paste", text, at, graph: this.studio.graph, trust });
    const untrusted = results?.[0]?.["untrusted"] as Record<string, string> | undefined;
    if (untrusted) this.studio.pasting = { functions: untrusted, agree: () => void this.pasteText(text, true) };
    else this.choose(results);
  }

  /** Copies blocks inside their graph; `at` has their positions, beside the originals if it is missing. */
  async duplicate(blocks = this.chosen, at?: [number, number][]): Promise<void> {
    if (blocks.length === 0) return;
    const beside = blocks.map((id) => (this.studio.blocks.get(id)?.at ?? [0, 0]).map((position) => position + COPY_DISTANCE));
    this.choose(await this.studio.edit({ op: "duplicate", blocks, at: at ?? beside }));
  }

  async group(): Promise<void> {
    const rectangles = this.chosenRectangles().map(([, rectangle]) => rectangle);
    if (rectangles.length === 0) return;
    const at = [Math.min(...rectangles.map(({ x }) => x)), Math.min(...rectangles.map(({ y }) => y))];
    this.choose(await this.studio.edit({ op: "group", blocks: this.chosen, at }));
  }

  async ungroup(): Promise<void> {
    const [block] = this.chosen;
    if (block !== undefined) this.choose(await this.studio.edit({ op: "ungroup", block }));
  }

  /** Removes the chosen blocks and connects what fed them with what they fed. */
  async dissolve(): Promise<void> {
    const ops = this.chosen.map((block) => ({ op: "dissolve", block }));
    if (ops.length > 0) await this.studio.edit(...ops);
  }

  async remove(): Promise<void> {
    const ops = this.chosen.map((block) => ({ op: "remove", block }));
    if (ops.length > 0) await this.studio.edit(...ops);
  }

  async arrange(): Promise<void> {
    const heights = Object.fromEntries([...(this.geometry()?.rectangles() ?? [])].map(([id, { height }]) => [id, height]));
    await this.studio.edit({ op: "arrange", graph: this.studio.graph, heights });
  }

  /** Makes a block with a slider of an input's number. */
  async makeSlider(pin: PinReference): Promise<void> {
    const [x, y] = this.studio.blocks.get(pin[0])?.at ?? [0, 0];
    this.choose(await this.studio.edit({ op: "slider", pin, at: [x - 290, y] }));
  }

  /** Moves the chosen blocks by one step of the arrow keys. */
  async nudge(right: number, down: number): Promise<void> {
    const ops = this.chosen.map((block): EditOperation => {
      const [x, y] = this.studio.blocks.get(block)?.at ?? [0, 0];
      return { op: "move", block, at: [x + NUDGE * right, y + NUDGE * down] };
    });
    if (ops.length > 0) await this.studio.edit(...ops);
  }

  async align(edge: Edge): Promise<void> {
    const chosen = this.chosenRectangles();
    const ends = chosen.map(([, { x, y, width, height }]) => ({ left: x, right: x + width, top: y, bottom: y + height })[edge]);
    const line = edge === "left" || edge === "top" ? Math.min(...ends) : Math.max(...ends);
    const ops = chosen.map(([block, { x, y, width, height }]): EditOperation => {
      const at = { left: [line, y], right: [line - width, y], top: [x, line], bottom: [x, line - height] }[edge];
      return { op: "move", block, at: at.map(Math.round) };
    });
    if (ops.length > 1) await this.studio.edit(...ops);
  }

  private chosenRectangles(): [string, Rectangle][] {
    const rectangles = this.geometry()?.rectangles() ?? new Map<string, Rectangle>();
    return this.chosen.flatMap((id) => {
      const rectangle = rectangles.get(id);
      return rectangle ? [[id, rectangle] as [string, Rectangle]] : [];
    });
  }

  private choose(results: Record<string, unknown>[] | null): void {
    const blocks = results?.[0]?.["blocks"];
    if (Array.isArray(blocks)) this.studio.choose(blocks as string[]);
  }
}

function count(blocks: number): string {
  return blocks === 1 ? "1 block" : `${blocks} blocks`;
}
