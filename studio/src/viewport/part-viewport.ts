// A viewport of a part: a WebGL 2 canvas that traces the part's shader, with orbit, pan, zoom, section plane, displays
// of the field and picked points. It draws coarsely while something moves and finely when it rests. Where the shader is
// too large or does not compile, it shows pictures that the server draws. It needs no framework.
import { axesOf, fitBox } from "./camera.ts";
import { Painter, type View } from "./painter.ts";
import { listenToPointer } from "./pointer-control.ts";
import { ServerFrames } from "./server-frames.ts";
import type {
  Camera,
  FrameRequest,
  PartViewportOptions,
  PickedPoint,
  Source,
  UniformValues,
  Vec3,
  Viewport,
  ViewportSettings,
  ViewportShader,
} from "./types.ts";
import { DEFAULT_SETTINGS, viewUniforms } from "./view-uniforms.ts";

const DEFAULT_DIRECTION: Vec3 = [-0.6, 0.75, -0.5];
const LABEL = "3D view. Arrow keys turn it, Shift and arrow keys move it, plus and minus zoom, Home shows all of it";
const REST = 140; // milliseconds without a change before the fine picture
// A software compiler takes about a second for 8,000 operations, and a minute for 50,000.
const MAX_OPERATIONS = 20_000;

export class PartViewport implements Viewport {
  private readonly canvas = document.createElement("canvas");
  private readonly overlay = document.createElement("canvas"); // pictures of the server
  private readonly painter: Painter | null;
  private readonly server: ServerFrames | null;
  private readonly ended = new AbortController();
  private readonly observer: ResizeObserver;
  private shader: ViewportShader | null = null;
  private bounds = { low: [-1, -1, -1] as Vec3, high: [1, 1, 1] as Vec3, steepness: 1 };
  private values: Record<string, readonly number[]> = {};
  private currentCamera: Camera = { target: [0, 0, 0], direction: DEFAULT_DIRECTION, height: 2 };
  private currentSettings: ViewportSettings;
  private currentSource: Source = { kind: "server", reason: "there is no part" };
  private compiling = false;
  private frame = 0; // of requestAnimationFrame; 0: none
  private rest: ReturnType<typeof setTimeout> | undefined;
  private painting = false;
  private changed = false; // since the coarse picture that is being drawn began

  /** Fills `parent`, whose size decides the size of the picture. */
  constructor(
    private readonly parent: HTMLElement,
    private readonly options: PartViewportOptions = {},
  ) {
    this.currentSettings = { ...DEFAULT_SETTINGS, ...options.settings };
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.style.cssText = "position:absolute;inset:0;width:100%;height:100%;display:block;touch-action:none";
      parent.append(canvas);
    }
    if (getComputedStyle(parent).position === "static") parent.style.position = "relative";
    this.overlay.style.pointerEvents = "none";
    this.overlay.style.display = "none";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", LABEL);
    const gl = this.canvas.getContext("webgl2", { antialias: false, depth: false, preserveDrawingBuffer: true });
    this.painter = gl ? new Painter(gl, (painted) => options.onFrame?.(painted)) : null;
    const draw = options.requestFrame;
    this.server = draw
      ? new ServerFrames(
          this.overlay,
          draw,
          (coarse, milliseconds) => options.onFrame?.({ coarse, milliseconds }),
          (reason) => this.setSource({ kind: "server", reason }),
        )
      : null;
    this.listen();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(parent);
    this.resize();
  }

  get camera(): Camera {
    return this.currentCamera;
  }

  get settings(): ViewportSettings {
    return this.currentSettings;
  }

  get source(): Source {
    return this.currentSource;
  }

  setShader(shader: ViewportShader): void {
    const before = this.shader;
    const same = before && before.low.join() === shader.low.join() && before.high.join() === shader.high.join();
    this.shader = shader;
    this.bounds = { low: shader.low, high: shader.high, steepness: shader.steepness };
    this.values = {};
    for (const uniform of shader.uniforms) if (uniform.value) this.values[uniform.name] = uniform.value;
    if (!same) this.currentCamera = this.fitted(before ? this.currentCamera.direction : DEFAULT_DIRECTION);
    this.compile();
    this.invalidate();
  }

  setUniforms(values: UniformValues): void {
    for (const [name, value] of Object.entries(values)) {
      this.values[name] = typeof value === "number" ? [value] : value;
      if (this.isClient) this.painter?.program?.set(name, value);
    }
    this.invalidate();
  }

  setBounds(bounds: { readonly steepness?: number; readonly low?: Vec3; readonly high?: Vec3 }): void {
    this.bounds = { ...this.bounds, ...bounds };
    this.invalidate();
  }

  setSettings(settings: Partial<ViewportSettings>): void {
    this.currentSettings = { ...this.currentSettings, ...settings };
    this.invalidate();
  }

  setCamera(camera: Partial<Camera>): void {
    this.currentCamera = { ...this.currentCamera, ...camera };
    this.options.onCamera?.(this.currentCamera);
    this.invalidate();
  }

  fit(direction: Vec3 = this.currentCamera.direction): void {
    this.setCamera(this.fitted(direction));
  }

  async pick(x: number, y: number): Promise<PickedPoint | null> {
    const { width, height } = this.canvas;
    if (!this.isClient || !this.painter) {
      return (await this.options.requestPick?.(this.request(false), x, y)) ?? null;
    }
    const across = (x / this.parent.clientWidth) * width;
    const up = (1 - y / this.parent.clientHeight) * height;
    const [found, ...answer] = this.painter.pick(this.view(width, height, 4096), across, up);
    if (found !== 1) return null;
    const [px = 0, py = 0, pz = 0, nx = 0, ny = 0, nz = 0] = answer;
    return { point: [px, py, pz], normal: [nx, ny, nz], x, y };
  }

  toBlob(): Promise<Blob> {
    const canvas = this.isClient ? this.canvas : this.overlay;
    return new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the browser made no picture"))));
    });
  }

  dispose(): void {
    this.ended.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
    this.server?.cancel();
    this.painter?.dispose();
    this.canvas.remove();
    this.overlay.remove();
  }

  // --- who draws ---

  private get isClient(): boolean {
    return this.currentSource.kind === "client";
  }

  private setSource(source: Source): void {
    const isNew = JSON.stringify(source) !== JSON.stringify(this.currentSource);
    this.currentSource = source;
    this.overlay.style.display = source.kind === "server" && this.server ? "block" : "none";
    if (isNew) this.options.onSource?.(source);
  }

  /** Starts to compile; until then, and if that fails, the server draws. */
  private compile(): void {
    const { shader, painter } = this;
    this.compiling = false;
    if (!shader) return;
    const limit = this.options.maxOperations ?? MAX_OPERATIONS;
    if (!painter) {
      this.setSource({ kind: "server", reason: "the browser has no WebGL 2" });
    } else if (shader.operations > limit) {
      painter.stop();
      this.setSource({ kind: "server", reason: `the shader has ${shader.operations} operations, more than ${limit}` });
    } else {
      this.setSource({ kind: "server", reason: "the shader is being compiled" });
      this.attempt(() => painter.compile(shader));
      this.compiling = painter.program !== null;
      this.look();
    }
  }

  /** Whether the compiler is done is asked once a frame. */
  private look(): void {
    const program = this.painter?.program;
    if (!this.compiling || !program || this.ended.signal.aborted) return;
    this.attempt(() => {
      if (!program.isReady()) {
        requestAnimationFrame(() => this.look());
        return;
      }
      this.compiling = false;
      for (const [name, value] of Object.entries(this.values)) program.set(name, value);
      this.server?.cancel();
      this.setSource({ kind: "client" });
      this.invalidate();
    });
  }

  private attempt(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.compiling = false;
      this.setSource({ kind: "server", reason: error instanceof Error ? error.message : String(error) });
    }
  }

  // --- when to draw ---

  /** Draws coarsely in the next frame, and finely when nothing has changed for a while. */
  private invalidate(): void {
    this.painter?.stop();
    this.changed = true;
    if (this.frame === 0) this.frame = requestAnimationFrame(() => void this.paint());
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.refine(), REST);
  }

  private async paint(): Promise<void> {
    this.frame = 0;
    if (!this.shader || this.ended.signal.aborted || this.painting) return;
    if (!this.isClient) {
      this.server?.request(this.request(true));
      return;
    }
    this.painting = true;
    this.changed = false;
    await this.painter?.paintCoarse(this.view);
    this.painting = false;
    if (this.changed && !this.ended.signal.aborted && this.frame === 0) {
      this.frame = requestAnimationFrame(() => void this.paint());
    }
  }

  private refine(): void {
    if (!this.shader || this.ended.signal.aborted) return;
    if (!this.isClient) this.server?.request(this.request(false));
    else if (this.painting || this.frame !== 0) this.rest = setTimeout(() => this.refine(), REST / 4);
    else void this.painter?.paintFine(this.view, this.options.smooth ?? true);
  }

  private readonly view: View = (width, height, steps) => {
    if (!this.shader) throw new Error("there is no part");
    return viewUniforms(this.shader, this.bounds, this.currentCamera, this.currentSettings, width, height, steps);
  };

  private request(coarse: boolean): FrameRequest {
    const { width, height } = this.canvas;
    const size = coarse ? 0.5 : 1;
    return {
      camera: this.currentCamera,
      settings: this.currentSettings,
      uniforms: this.values,
      width: Math.max(1, Math.round(width * size)),
      height: Math.max(1, Math.round(height * size)),
      coarse,
    };
  }

  // --- the element ---

  private resize(): void {
    const { clientWidth, clientHeight } = this.parent;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, Math.round(clientWidth * ratio));
    const height = Math.max(1, Math.round(clientHeight * ratio));
    if (this.canvas.width === width && this.canvas.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.invalidate();
  }

  private fitted(direction: Vec3): Camera {
    const { clientWidth, clientHeight } = this.parent;
    const aspect = clientWidth / Math.max(1, clientHeight) || 1;
    return fitBox(this.bounds.low, this.bounds.high, axesOf(direction).forward, aspect);
  }

  private listen(): void {
    const { signal } = this.ended;
    const target = {
      camera: () => this.currentCamera,
      move: (camera: Camera) => this.setCamera(camera),
      fit: () => this.fit(),
      click: (x: number, y: number) => void this.pick(x, y).then((picked) => this.options.onPick?.(picked)),
    };
    listenToPointer(this.canvas, target, signal);
    this.canvas.addEventListener(
      "webglcontextlost",
      (event) => {
        event.preventDefault();
        this.setSource({ kind: "server", reason: "the browser has taken the GPU away" });
      },
      { signal },
    );
    this.canvas.addEventListener("webglcontextrestored", () => this.compile(), { signal });
  }
}
