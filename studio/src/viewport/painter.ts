// Draws with one WebGL 2 context: coarse pictures at once, then a fine one strip by strip, so that the page never
// waits.
import { ShaderProgram, type ViewUniforms } from "./shader-program.ts";
import type { ViewportShader } from "./types.ts";

interface Target {
  readonly framebuffer: WebGLFramebuffer;
  readonly texture: WebGLTexture;
  readonly width: number;
  readonly height: number;
}

/** What a picture shows, for any number of pixels. */
export type View = (width: number, height: number, steps: number) => ViewUniforms;

export interface Painted {
  readonly coarse: boolean;
  readonly milliseconds: number;
}

const COARSE_BUDGET = 24; // milliseconds
const STRIP_BUDGET = 16;
const LARGEST_DIVISOR = 12;
const COARSE_STEPS = 192;
const FINE_STEPS = 4096;
const SMOOTH_BUDGET = 300; // milliseconds for four times the pixels

export class Painter {
  program: ShaderProgram | null = null;
  private divisor = 4; // of the size of coarse pictures
  private rows = 16; // in a strip
  private coarse: Target | null = null;
  private fine: Target | null = null;
  private painting = 0; // counts fine pictures and what ends them

  constructor(
    private readonly gl: WebGL2RenderingContext,
    private readonly onPainted: (painted: Painted) => void,
  ) {}

  compile(shader: ViewportShader): void {
    this.stop();
    this.program?.dispose();
    this.program = null;
    this.program = ShaderProgram.compile(this.gl, shader);
  }

  /** Abandons the fine picture that is being drawn. Coarse ones are shown, or a moving view would show none. */
  stop(): void {
    this.painting += 1;
  }

  /** Shows a small picture, enlarged. Its size follows the time that the last ones took. */
  async paintCoarse(view: View): Promise<void> {
    this.stop();
    const { program } = this;
    const { canvas } = this.gl;
    const width = Math.max(1, Math.ceil(canvas.width / this.divisor));
    const height = Math.max(1, Math.ceil(canvas.height / this.divisor));
    this.coarse = this.resize(this.coarse, width, height);
    const milliseconds = await this.drawRows(this.coarse, view(width, height, COARSE_STEPS), 0, height);
    if (milliseconds > COARSE_BUDGET) this.divisor = Math.min(LARGEST_DIVISOR, this.divisor * 1.4);
    else if (milliseconds < COARSE_BUDGET / 3) this.divisor = Math.max(1, this.divisor / 1.25);
    if (program !== this.program) return;
    this.show(this.coarse);
    this.onPainted({ coarse: true, milliseconds });
  }

  /** Draws the picture with all its pixels, and then a smooth one if that takes no longer than people wait. */
  async paintFine(view: View, smooth: boolean): Promise<void> {
    const painting = ++this.painting;
    const { gl } = this;
    const { width, height } = gl.canvas;
    const milliseconds = await this.paintStrips(view, width, height, painting);
    if (milliseconds === null || !smooth || 4 * milliseconds > SMOOTH_BUDGET) return;
    const largest = gl.getParameter(gl.MAX_TEXTURE_SIZE) as number;
    // A linear filter at half the size is the mean of four samples.
    if (2 * Math.max(width, height) <= largest) await this.paintStrips(view, 2 * width, 2 * height, painting);
  }

  /** Shows a picture when it is whole and returns its milliseconds; null if another has begun before. */
  private async paintStrips(view: View, width: number, height: number, painting: number): Promise<number | null> {
    this.fine = this.resize(this.fine, width, height);
    const uniforms = view(width, height, FINE_STEPS);
    const target = this.fine;
    let total = 0;
    for (let row = 0; row < height; ) {
      const rows = Math.min(this.rows, height - row);
      const milliseconds = await this.drawRows(target, uniforms, row, rows);
      if (painting !== this.painting) return null;
      row += rows;
      total += milliseconds;
      const factor = Math.max(0.5, Math.min(2, STRIP_BUDGET / Math.max(milliseconds, 0.1)));
      this.rows = Math.max(4, Math.round(this.rows * factor));
    }
    this.show(target);
    this.onPainted({ coarse: false, milliseconds: total });
    return total;
  }

  /** The seven numbers that the shader answers for a pixel: whether there is a surface, its point and its normal. */
  pick(view: ViewUniforms, x: number, y: number): Float32Array {
    const { gl, program } = this;
    const target = this.resize(null, 8, 1);
    const bytes = new Uint8Array(32);
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.framebuffer);
    gl.viewport(0, 0, 8, 1);
    program?.draw({ ...view, lg_picked: [x, y] });
    gl.readPixels(0, 0, 8, 1, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
    this.free(target);
    return new Float32Array(bytes.buffer, 0, 7);
  }

  dispose(): void {
    this.stop();
    this.program?.dispose();
    this.program = null; // a coarse picture that is being drawn is not shown
    for (const target of [this.coarse, this.fine]) this.free(target);
  }

  /** Draws some rows and waits, without blocking, until the GPU is done; returns the milliseconds. */
  private async drawRows(target: Target, view: ViewUniforms, row: number, rows: number): Promise<number> {
    const { gl } = this;
    const started = performance.now();
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.framebuffer);
    gl.viewport(0, 0, target.width, target.height);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(0, row, target.width, rows);
    this.program?.draw(view);
    gl.disable(gl.SCISSOR_TEST);
    await finished(gl);
    return performance.now() - started;
  }

  private show(source: Target): void {
    const { gl } = this;
    const { width, height } = gl.canvas;
    gl.bindFramebuffer(gl.READ_FRAMEBUFFER, source.framebuffer);
    gl.bindFramebuffer(gl.DRAW_FRAMEBUFFER, null);
    gl.blitFramebuffer(0, 0, source.width, source.height, 0, 0, width, height, gl.COLOR_BUFFER_BIT, gl.LINEAR);
  }

  private resize(target: Target | null, width: number, height: number): Target {
    const { gl } = this;
    if (target && target.width === width && target.height === height) return target;
    this.free(target);
    const texture = gl.createTexture();
    const framebuffer = gl.createFramebuffer();
    if (!texture || !framebuffer) throw new Error("the WebGL context is lost");
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, width, height);
    gl.bindFramebuffer(gl.FRAMEBUFFER, framebuffer);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
    return { framebuffer, texture, width, height };
  }

  private free(target: Target | null): void {
    if (!target) return;
    this.gl.deleteFramebuffer(target.framebuffer);
    this.gl.deleteTexture(target.texture);
  }
}

/** Resolves when the GPU has done what it was given so far. */
function finished(gl: WebGL2RenderingContext): Promise<void> {
  const sync = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
  gl.flush();
  if (!sync) return Promise.resolve(); // the context is lost
  return new Promise((resolve) => {
    const look = (): void => {
      const state = gl.clientWaitSync(sync, 0, 0);
      if (state === gl.TIMEOUT_EXPIRED) {
        setTimeout(look, 1);
      } else {
        gl.deleteSync(sync);
        resolve();
      }
    };
    look();
  });
}
