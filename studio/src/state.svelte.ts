// What the page knows: the graph as the server describes it, live values, problems, and what is selected here.
import { SvelteMap, SvelteSet } from "svelte/reactivity";
import { Connection, Rejection, type Receiver } from "./connection.ts";
import { saveBlob } from "./downloads.ts";
import { afterShown } from "./pacing.ts";
import { describeProblem } from "./problems.ts";
import { isBlock } from "./protocol.ts";
import type {
  Block, CatalogueEntry, Example, Frame, GraphEntry, History, Input, Numeric, Operation, Permission,
  BinaryHeader, Part, PinReference, Problem, ServerMessage, Summary,
} from "./protocol.ts";
import type { Untrusted } from "./editing/actions.ts";
import type { EditOperation, Fits, Flash, View } from "./shown.ts";
import { kindsOf } from "./views/kinds.ts";
import type { OpenTransport } from "./transport.ts";
import { ViewStore } from "./views/store.svelte.ts";
import { Tuning } from "./tuning.svelte.ts";

const LEVELS: Permission[] = ["view", "tune", "edit", "code"];
const SUBSCRIBE_DELAY = 60;
const ACTIVE_TIME = 600;

export class Studio implements Receiver {
  connection: "connecting" | "open" | "lost" = $state("connecting");
  mode: "waiting" | "gallery" | "graph" = $state("waiting");
  permission: Permission = $state("view");
  title = $state("");
  drives = $state(true);
  catalogue: CatalogueEntry[] = $state.raw([]);
  examples: Example[] = $state.raw([]);
  untrusted: { name: string; functions: Record<string, string> } | null = $state.raw(null);
  opening: string | null = $state(null);
  notice: { text: string; isError: boolean } | null = $state.raw(null);

  readonly blocks = new SvelteMap<string, Block>();
  readonly graphs = new SvelteMap<string, GraphEntry>();
  readonly values = new SvelteMap<string, Record<string, Summary | null>>();
  readonly flashes = new SvelteMap<string, Flash>();
  readonly times = new SvelteMap<string, number>();
  readonly drafts = new SvelteMap<string, string>(); // edited text that the server has not taken, by block
  frame: Frame | null = $state.raw(null);
  error: Problem | null = $state.raw(null);
  reason = $state("");
  history: History = $state.raw({ undo: null, redo: null });
  root = $state("");
  graph = $state(""); // the graph that is shown
  revision = $state(0); // changes with the structure of the graph

  selected: string | null = $state(null);
  readonly chosen = new SvelteSet<string>(); // the selected blocks; `selected` if there is one
  hovered: string | null = $state(null); // a block whose value is shown at the pointer
  readonly active = new SvelteSet<string>(); // blocks that ran just now: their wires move
  fits: Fits | null = $state.raw(null); // while a wire is dragged
  busy = $state(0); // seconds that the present frame has taken, if it takes long
  pasting: Untrusted | null = $state.raw(null);
  showsMinimap = $state(true);
  focus: { block: string; count: number } | null = $state.raw(null); // asks the canvas to show a block
  showsTimes = $state(false);
  showsTime = $state(false); // the time line
  part: Part | null = $state.raw(null);
  steepness = $state(0); // 0: that of the shader
  showsPart = $state(true);
  readonly views = new SvelteMap<string, View>();
  readonly shows = new ViewStore(); // what has arrived for views
  readonly visible = new SvelteSet<string>(); // blocks on the screen
  readonly tuning = new Tuning((message) => this.socket.send(message), (message) => this.request(message));

  private readonly socket: Connection;
  private readonly held = new Map<string, number>(); // pins that are being turned here; the server's values come late
  private readonly queued = new Map<string, { pin: PinReference; value: Numeric }>();
  private flushing = false;
  private subscribing: ReturnType<typeof setTimeout> | null = null;
  private resting: ReturnType<typeof setInterval> | null = null;
  private readonly restingCounts = new Map<string, number>();
  private noticing: ReturnType<typeof setTimeout> | null = null;

  constructor(
    connect: OpenTransport,
    private readonly build: string,
  ) {
    this.socket = new Connection(connect, this);
  }

  start(): void {
    this.socket.open();
  }

  may(needed: Permission): boolean {
    return LEVELS.indexOf(this.permission) >= LEVELS.indexOf(needed) && this.connection === "open";
  }

  problemsOf(block: string): Problem[] {
    return this.frame?.problems.filter((problem) => problem.block === block) ?? [];
  }

  /** The blocks of the graph that is shown. */
  shownBlocks(): [string, Block][] {
    return [...this.blocks].filter(([, block]) => block.graph === this.graph);
  }

  /** The graphs around the one that is shown, outermost first. */
  path(): { graph: string; label: string }[] {
    const steps: { graph: string; label: string }[] = [];
    let graph = this.graph;
    while (graph !== this.root) {
      const entry = this.graphs.get(graph);
      const parent = entry?.parent ? this.blocks.get(entry.parent) : undefined;
      if (entry === undefined || !parent?.graph) break;
      steps.unshift({ graph, label: entry.label ? `${parent.name}: ${entry.label}` : parent.name });
      graph = parent.graph;
    }
    return [{ graph: this.root, label: this.title }, ...steps];
  }

  // --- from the server ---

  opened(): void {
    this.socket.send({ type: "hello", protocol: 1, build: this.build });
  }

  lost(): void {
    this.connection = "lost";
    this.busy = 0;
  }

  message(message: ServerMessage): void {
    switch (message.type) {
      case "welcome":
        this.connection = "open";
        this.permission = message.permission;
        this.catalogue = message.catalogue;
        this.examples = message.gallery;
        break;
      case "gallery":
        this.clear();
        this.mode = "gallery";
        this.untrusted = message.untrusted;
        break;
      case "snapshot":
        this.takeSnapshot(message);
        break;
      case "update":
        this.takeUpdate(message);
        break;
      case "plot":
      case "table":
        this.shows.take(message);
        break;
      case "clock":
        if (this.frame) this.frame = { ...this.frame, playing: message.playing, time: message.time, rate: message.rate, speed: message.speed };
        break;
      case "busy":
        this.busy = message.seconds;
        break;
      case "stopped":
        this.error = message.error;
        if (this.frame) this.frame = { ...this.frame, playing: false };
        break;
      case "rejected":
        this.tell(describeProblem(message.error), true);
        break;
    }
  }

  binary(header: BinaryHeader, payload: Uint8Array<ArrayBuffer>): void {
    if (header.type === "file") saveBlob(new Blob([payload], { type: header.media }), header.name);
    else this.shows.takeBinary(header, payload);
  }

  /** Says that a view is on the screen, so that the next one may come. */
  acknowledge(view: string): void {
    this.socket.send({ type: "ack", view });
  }

  private clear(): void {
    for (const map of [this.blocks, this.graphs, this.values, this.flashes, this.times]) map.clear();
    this.shows.clear();
    this.held.clear();
    this.active.clear();
    this.history = { undo: null, redo: null };
    this.frame = this.error = null;
    this.reason = "";
    this.part = null;
    this.steepness = 0;
    this.tuning.clear();
  }

  private takeSnapshot(message: Extract<ServerMessage, { type: "snapshot" }>): void {
    const isAnother = message.graph !== this.root || message.title !== this.title || this.mode !== "graph";
    this.clear();
    this.root = message.graph;
    this.title = message.title;
    this.drives = message.drives;
    this.error = message.error;
    for (const [id, entry] of Object.entries(message.entries)) this.put(id, entry);
    if (isAnother || !this.graphs.has(this.graph)) this.graph = message.graph;
    if (isAnother) {
      this.views.clear();
      this.drafts.clear();
      this.chosen.clear();
      this.selected = null;
      this.showsPart = true;
    }
    this.frame = message.frame;
    for (const [block, seconds] of Object.entries(message.frame.seconds)) this.times.set(block, seconds);
    this.history = message.history;
    this.part = message.part;
    this.mode = "graph";
    this.opening = null;
    this.revision++;
    this.subscribe();
  }

  private takeUpdate(message: Extract<ServerMessage, { type: "update" }>): void {
    if (message.ops.length > 0) this.apply(message.ops);
    for (const [block, outputs] of Object.entries(message.values)) {
      this.values.set(block, outputs);
      this.openFirstView(block, outputs);
    }
    if (message.frame) this.takeFrame(message.frame);
    if (message.reason !== undefined) this.reason = message.reason;
    if (message.history !== undefined) this.history = message.history;
    if (message.part !== undefined) this.part = message.part;
    if (message.steepness !== undefined) this.steepness = message.steepness;
    if (message.tuning !== undefined) this.tuning.take(message.tuning);
    afterShown(() => this.socket.send({ type: "ack" }));
  }

  private apply(operations: Operation[]): void {
    for (const operation of operations) {
      if (operation.op === "put") this.put(operation.id, operation.value);
      else this.drop(operation.id);
    }
    if (!this.graphs.has(this.graph)) this.graph = this.root;
    this.revision++;
    if (this.part) this.subscribe(); // another block may feed it
  }

  private put(id: string, entry: Block | GraphEntry): void {
    if (!isBlock(entry)) {
      this.graphs.set(id, entry);
      return;
    }
    const inputs = entry.inputs.map((input) => {
      const isHeld = this.held.has(`${id}.${input.name}`);
      const here = isHeld ? this.input([id, input.name]) : undefined;
      return here?.value === undefined ? input : { ...input, value: here.value };
    });
    this.blocks.set(id, { ...entry, inputs });
  }

  private drop(id: string): void {
    for (const map of [this.blocks, this.graphs, this.values, this.flashes, this.times]) map.delete(id);
    for (const [name, view] of this.views) if (view.block === id) this.closeView(name);
    this.chosen.delete(id);
    if (this.selected === id) this.selected = null;
  }

  private takeFrame(frame: Frame): void {
    this.frame = frame;
    this.error = null;
    for (const [block, level] of Object.entries(frame.ran)) {
      this.flashes.set(block, { level, count: (this.flashes.get(block)?.count ?? 0) + 1 });
      this.active.add(block);
    }
    this.resting ??= setInterval(() => this.rest(), ACTIVE_TIME);
    for (const [block, seconds] of Object.entries(frame.seconds)) this.times.set(block, seconds);
  }

  /** Stops the wires of blocks that have not run since the last call. */
  private rest(): void {
    for (const block of this.active) {
      const count = this.flashes.get(block)?.count ?? 0;
      if (this.restingCounts.get(block) === count) this.active.delete(block);
      this.restingCounts.set(block, count);
    }
    if (this.active.size > 0 || this.resting === null) return;
    clearInterval(this.resting);
    this.resting = null;
    this.restingCounts.clear();
  }

  /** Shows the last picture of a graph that has just been opened. */
  private openFirstView(block: string, outputs: Record<string, Summary | null>): void {
    const described = this.blocks.get(block);
    if (this.views.size > 0 || described === undefined || described.kind === "state") return;
    const feeds = [...this.blocks.values()].some((other) => other.inputs.some((input) => input.from?.[0] === block));
    const output = described.outputs.find((name) => outputs[name]?.picture);
    if (output !== undefined && !feeds) this.openView(block, output);
  }

  // --- what the page shows ---

  openView(block: string, output: string): void {
    const kind = kindsOf(this.values.get(block)?.[output])[0] ?? "table";
    const name = `${block}.${output}`;
    if (!this.views.has(name)) this.views.set(name, { block, output, kind, at: [0, 0], wide: false });
    this.subscribe();
  }

  /** Shows a view as something else, elsewhere, or other rows of it. */
  changeView(name: string, change: Partial<Pick<View, "kind" | "at" | "wide">>): void {
    const view = this.views.get(name);
    if (!view) return;
    this.views.set(name, { ...view, ...change });
    if (change.kind) this.shows.drop(name);
    this.subscribe();
  }

  closeView(name: string): void {
    this.views.delete(name);
    this.shows.drop(name);
    this.subscribe();
  }

  select(block: string | null): void {
    this.choose(block === null ? [] : [block]);
  }

  /** Selects blocks; the inspector shows the only one. */
  choose(blocks: string[]): void {
    for (const id of this.chosen) if (!blocks.includes(id)) this.chosen.delete(id);
    for (const id of blocks) this.chosen.add(id);
    const block = blocks.length === 1 ? (blocks[0] ?? null) : null;
    if (this.selected === block) return;
    this.selected = block;
    this.reason = "";
    this.subscribe();
  }

  /** Shows a block: enters its graph, selects it and centres it. */
  reveal(block: string): void {
    const graph = this.blocks.get(block)?.graph;
    if (!graph) return;
    this.graph = graph;
    this.select(block);
    this.focus = { block, count: (this.focus?.count ?? 0) + 1 };
  }

  /** Shows the graph around the one that is shown, with its block selected. */
  leaveGraph(): void {
    const parent = this.graphs.get(this.graph)?.parent;
    if (parent) this.reveal(parent);
  }

  enter(graph: string): void {
    this.graph = graph;
    this.select(null);
  }

  /** Tells the server what is shown, soon: scrolling changes it often. */
  subscribe(): void {
    this.subscribing ??= setTimeout(() => {
      this.subscribing = null;
      const blocks = new Set(this.visible);
      for (const id of [this.selected, this.hovered]) if (id !== null) blocks.add(id);
      for (const source of this.partSources()) blocks.add(source);
      for (const { block } of this.views.values()) blocks.add(block);
      if (this.views.size === 0) for (const [id] of this.shownBlocks()) blocks.add(id);
      const views = Object.fromEntries([...this.views].map(([name, { block, output, kind, at }]) => [name, { pin: [block, output], kind, at }]));
      this.socket.send({ type: "subscribe", blocks: [...blocks], views, inspect: this.selected });
    }, SUBSCRIBE_DELAY);
  }

  /** The blocks that feed parameters of the part. */
  private partSources(): string[] {
    const inputs = this.part ? (this.blocks.get(this.part.block)?.inputs ?? []) : [];
    return inputs.flatMap((input) => (input.from ? [input.from[0]] : []));
  }

  // --- edits ---

  /** Sends edits. Returns their results, or null after telling why they were refused. */
  async edit(...ops: EditOperation[]): Promise<Record<string, unknown>[] | null> {
    try {
      const answer = await this.socket.request({ type: "edit", ops });
      return answer["results"] as Record<string, unknown>[];
    } catch (error) {
      this.tellError(error);
      return null;
    }
  }

  input(pin: PinReference): Input | undefined {
    return this.blocks.get(pin[0])?.inputs.find((input) => input.name === pin[1]);
  }

  /** Shows a number at once, and sends the newest one once an animation frame. */
  turn(pin: PinReference, value: Numeric): void {
    const key = pin.join(".");
    const block = this.blocks.get(pin[0]);
    if (!this.held.has(key)) this.socket.send({ type: "gesture", do: "begin", label: `turn ${block?.name}.${pin[1]}`.slice(0, 100) });
    this.held.set(key, (this.held.get(key) ?? 0) + 1);
    if (block) {
      const inputs = block.inputs.map((input) => (input.name === pin[1] ? { ...input, value } : input));
      this.blocks.set(pin[0], { ...block, inputs });
    }
    this.queued.set(key, { pin, value });
    if (!this.flushing) {
      this.flushing = true;
      requestAnimationFrame(() => this.flush());
    }
  }

  /** Ends turning a number: from its answer on, the server's values are shown again. */
  async settle(pin: PinReference, value: Numeric): Promise<void> {
    const key = pin.join(".");
    this.turn(pin, value);
    this.flush();
    const turns = this.held.get(key);
    await this.edit({ op: "set", pin, value });
    if (this.held.get(key) !== turns) return; // it is being turned again
    this.held.delete(key);
    this.socket.send({ type: "gesture", do: "commit" });
  }

  /** Ends turning a number as if it had not begun. */
  abort(pin: PinReference, value: Numeric): void {
    const key = pin.join(".");
    this.turn(pin, value);
    this.queued.delete(key);
    this.held.delete(key);
    this.socket.send({ type: "gesture", do: "cancel" });
  }

  /** Stops a frame that takes long. */
  stop(): void {
    this.socket.send({ type: "stop" });
  }

  /** Asks for a shader that can show how far a parameter moves the surface. */
  showSlopeOnSurface(parameter: string): void {
    void this.request({ type: "heat", parameter });
  }

  travel(direction: "undo" | "redo"): void {
    void this.request({ type: direction });
  }

  private flush(): void {
    this.flushing = false;
    for (const { pin, value } of this.queued.values()) {
      this.socket.send({ type: "edit", ops: [{ op: "set", pin, value }] });
    }
    this.queued.clear();
  }

  async add(entry: string, at: [number, number], link: { from?: PinReference; to?: PinReference } = {}): Promise<void> {
    const results = await this.edit({ op: "add", entry, at, graph: this.graph, ...link });
    const block = results?.[0]?.["block"];
    if (typeof block === "string") this.select(block);
  }

  async source(block: string): Promise<{ kind: string; text: string } | null> {
    try {
      const answer = await this.socket.request({ type: "source", block });
      return { kind: String(answer["kind"]), text: String(answer["text"]) };
    } catch {
      return null; // the block has gone, or the connection is lost: the editor asks again when it is back
    }
  }

  /** Replaces the body of a block. Returns why it was refused, or null. */
  async write(block: string, kind: string, text: string): Promise<Problem | null> {
    try {
      await this.socket.request({ type: "edit", ops: [{ op: kind, block, text }] });
      return null;
    } catch (error) {
      if (error instanceof Rejection) return error.problem;
      this.tellError(error);
      return { message: String(error), where: null, expected: null, found: null, help: null, line: 0 };
    }
  }

  clock(change: { playing?: boolean; step?: true; rate?: number; speed?: number; seek?: number }): void {
    this.socket.send({ type: "clock", ...change });
  }

  open(example: string): void {
    this.opening = example;
    void this.request({ type: "open", name: example });
  }

  trust(): void {
    void this.request({ type: "trust" });
  }

  leave(): void {
    void this.request({ type: "leave" });
  }

  /** Sends a message and returns its answer, or null after telling why it was refused. */
  async request(message: Record<string, unknown>): Promise<Record<string, unknown> | null> {
    try {
      return await this.socket.request(message);
    } catch (error) {
      this.opening = null;
      this.tellError(error);
      return null;
    }
  }

  tell(text: string, isError = false): void {
    this.notice = { text, isError };
    if (this.noticing !== null) clearTimeout(this.noticing);
    this.noticing = setTimeout(() => (this.notice = null), isError ? 8000 : 4000);
  }

  private tellError(error: unknown): void {
    this.tell(error instanceof Rejection ? describeProblem(error.problem) : `Not sent: ${(error as Error).message}`, true);
  }
}
