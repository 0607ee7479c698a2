// A compiled viewport shader: its uniforms, its textures, and drawing into framebuffers. Owns objects of one context.
import type { ShaderTexture, ShaderUniform, ViewportShader } from "./types.ts";

const VERTEX = `#version 300 es
void main()
{
    gl_Position = vec4(vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0, 0.0, 1.0);
}
`;

/** The uniforms of the view, which every viewport shader has. */
export type ViewUniforms = Readonly<Record<string, number | readonly number[]>>;

const INTEGERS = new Set(["lg_steps", "lg_display"]);

export class ShaderProgram {
  private readonly locations = new Map<string, WebGLUniformLocation | null>();
  private readonly textures: WebGLTexture[] = [];
  private readonly uniforms: ReadonlyMap<string, ShaderUniform>;
  private checked = false;

  private constructor(
    private readonly gl: WebGL2RenderingContext,
    private readonly program: WebGLProgram,
    private readonly shaders: readonly WebGLShader[],
    private readonly shader: ViewportShader,
    private readonly parallel: { readonly COMPLETION_STATUS_KHR: number } | null,
  ) {
    this.uniforms = new Map(shader.uniforms.map((uniform) => [uniform.name, uniform]));
  }

  /** Starts to compile. Ask `isReady` in later frames, because compilers may take seconds. */
  static compile(gl: WebGL2RenderingContext, shader: ViewportShader): ShaderProgram {
    const parallel = gl.getExtension("KHR_parallel_shader_compile") as { COMPLETION_STATUS_KHR: number } | null;
    const program = gl.createProgram();
    const kinds = [
      [gl.VERTEX_SHADER, VERTEX],
      [gl.FRAGMENT_SHADER, shader.text],
    ] as const;
    const shaders = kinds.map(([kind, text]) => {
      const compiled = gl.createShader(kind);
      if (!program || !compiled) throw new Error("the WebGL context is lost");
      gl.shaderSource(compiled, text);
      gl.compileShader(compiled);
      gl.attachShader(program, compiled);
      return compiled;
    });
    gl.linkProgram(program);
    return new ShaderProgram(gl, program, shaders, shader, parallel);
  }

  /** Whether the compiler has finished. Throws with the compiler's message if it failed. */
  isReady(): boolean {
    const { gl, program, parallel } = this;
    if (this.checked) return true;
    if (parallel && gl.getProgramParameter(program, parallel.COMPLETION_STATUS_KHR) === false) return false;
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
      const logs = [...this.shaders.map((shader) => gl.getShaderInfoLog(shader)), gl.getProgramInfoLog(program)];
      throw new Error(logs.find((log) => log) ?? "the shader does not compile");
    }
    this.checked = true;
    gl.useProgram(program);
    for (const texture of this.shader.textures) this.upload(texture);
    for (const uniform of this.shader.uniforms) if (uniform.value) this.set(uniform.name, uniform.value);
    return true;
  }

  /** Sets the uniform of a parameter. Parameters that the shader lacks are ignored: other views may have them. */
  set(name: string, value: number | readonly number[]): void {
    const uniform = this.uniforms.get(name);
    if (!uniform) return;
    const numbers = typeof value === "number" ? [value] : [...value];
    if (numbers.length !== uniform.size) {
      throw new RangeError(`uniform ${name} has ${uniform.size} numbers, not ${numbers.length}`);
    }
    this.gl.useProgram(this.program);
    this.send(uniform.identifier, uniform.kind, numbers);
  }

  /** Draws into the bound framebuffer, whose viewport and scissor are set. */
  draw(view: ViewUniforms): void {
    const { gl } = this;
    gl.useProgram(this.program);
    this.textures.forEach((texture, index) => {
      gl.activeTexture(gl.TEXTURE0 + index);
      gl.bindTexture(gl.TEXTURE_2D, texture);
    });
    for (const [name, value] of Object.entries(view)) {
      this.send(name, INTEGERS.has(name) ? "int" : "float", typeof value === "number" ? [value] : [...value]);
    }
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  dispose(): void {
    for (const texture of this.textures) this.gl.deleteTexture(texture);
    for (const shader of this.shaders) this.gl.deleteShader(shader);
    this.gl.deleteProgram(this.program);
  }

  private location(identifier: string): WebGLUniformLocation | null {
    if (!this.locations.has(identifier)) {
      this.locations.set(identifier, this.gl.getUniformLocation(this.program, identifier));
    }
    return this.locations.get(identifier) ?? null;
  }

  private send(identifier: string, kind: ShaderUniform["kind"], numbers: number[]): void {
    const { gl } = this;
    const at = this.location(identifier);
    if (at === null) return; // the compiler has removed it
    // More than four numbers are a list of single ones.
    const size = numbers.length > 4 ? 1 : numbers.length;
    const suffix = kind === "float" ? "f" : kind === "uint" ? "ui" : "i";
    const setter = `uniform${size}${suffix}v` as "uniform1fv";
    gl[setter](at, numbers);
  }

  private upload(texture: ShaderTexture): void {
    const { gl } = this;
    const largest = gl.getParameter(gl.MAX_TEXTURE_SIZE) as number;
    const units = gl.getParameter(gl.MAX_TEXTURE_IMAGE_UNITS) as number;
    if (texture.height > largest || this.textures.length >= units) {
      throw new Error(`the GPU has no room for the table ${texture.name}`);
    }
    const bytes = Uint8Array.from(atob(texture.pixels), (letter) => letter.charCodeAt(0));
    const made = gl.createTexture();
    gl.activeTexture(gl.TEXTURE0 + this.textures.length);
    gl.bindTexture(gl.TEXTURE_2D, made);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    const [internal, format, type, View] = {
      float: [gl.R32F, gl.RED, gl.FLOAT, Float32Array],
      int: [gl.R32I, gl.RED_INTEGER, gl.INT, Int32Array],
      uint: [gl.R32UI, gl.RED_INTEGER, gl.UNSIGNED_INT, Uint32Array],
    }[texture.kind] as [number, number, number, typeof Float32Array];
    const { width, height } = texture;
    gl.texImage2D(gl.TEXTURE_2D, 0, internal, width, height, 0, format, type, new View(bytes.buffer));
    gl.uniform1i(this.location(texture.identifier), this.textures.length);
    if (made) this.textures.push(made);
  }
}
