// A viewport of triangles or points: a WebGL 2 canvas with the camera and the pointer control of the part's viewport.
import { axesOf, fitBox } from "./camera.ts";
import { listenToPointer } from "./pointer-control.ts";
import type { Camera, Vec3 } from "./types.ts";

const VERTEX = `#version 300 es
in vec3 place;
uniform mat4 view;
uniform float size;
out vec3 point;
void main() { point = place; gl_Position = view * vec4(place, 1.0); gl_PointSize = size; }`;

// Flat shading: the normal of a triangle comes from the derivatives of its points, so none is stored.
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 point;
uniform vec3 color, right, up, forward;
uniform bool shaded;
out vec4 result;
void main() {
  if (!shaded) {
    if (length(gl_PointCoord - 0.5) > 0.5) { discard; }
    result = vec4(color, 1.0);
    return;
  }
  vec3 normal = normalize(cross(dFdx(point), dFdy(point)));
  float key = abs(dot(normal, normalize(-forward * 0.7 + up * 0.6 - right * 0.45)));
  result = vec4(min(color * (0.45 + 0.65 * key) + 0.12 * key, 1.0), 1.0);
}`;

const DIRECTION: Vec3 = [-0.6, 0.75, -0.5];
const POINT_SIZE = 5; // pixels

export class MeshViewport {
  private readonly canvas = document.createElement("canvas");
  private readonly gl: WebGL2RenderingContext;
  private readonly program: WebGLProgram;
  private readonly ended = new AbortController();
  private readonly observer: ResizeObserver;
  private camera: Camera = { target: [0, 0, 0], direction: DIRECTION, height: 2 };
  private low: Vec3 = [-1, -1, -1];
  private high: Vec3 = [1, 1, 1];
  private counts = { vertices: 0, corners: 0 };
  private colors: { background: Vec3; mesh: Vec3 } = { background: [1, 1, 1], mesh: [0.2, 0.4, 0.8] };
  private isFitted = false;
  private frame = 0;

  /** Fills `parent`. Throws where the browser has no WebGL 2. */
  constructor(
    private readonly parent: HTMLElement,
    label: string,
  ) {
    const gl = this.canvas.getContext("webgl2", { antialias: true, depth: true, preserveDrawingBuffer: true });
    if (!gl) throw new Error("the browser has no WebGL 2");
    this.gl = gl;
    this.canvas.style.cssText = "position:absolute;inset:0;width:100%;height:100%;display:block;touch-action:none";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${label}. Arrow keys turn it, plus and minus zoom, Home shows all of it`);
    parent.append(this.canvas);
    this.program = linkProgram(gl);
    gl.bindVertexArray(gl.createVertexArray());
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    const place = gl.getAttribLocation(this.program, "place");
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, 3, gl.FLOAT, false, 0, 0);
    const target = {
      camera: () => this.camera,
      move: (camera: Camera) => this.look(camera),
      fit: () => this.fit(),
      click: () => {},
    };
    listenToPointer(this.canvas, target, this.ended.signal);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(parent);
    this.resize();
  }

  /** Without triangles, the vertices are drawn as points. The first mesh decides where the camera is. */
  setMesh(vertices: Float32Array<ArrayBuffer>, triangles: Uint32Array<ArrayBuffer>): void {
    const { gl } = this;
    gl.bufferData(gl.ARRAY_BUFFER, vertices, gl.DYNAMIC_DRAW);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, triangles, gl.DYNAMIC_DRAW);
    this.counts = { vertices: vertices.length / 3, corners: triangles.length };
    [this.low, this.high] = boundsOf(vertices);
    if (!this.isFitted) this.fit();
    this.isFitted = true;
    this.invalidate();
  }

  /** CSS colours, as `rgb(…)`. */
  setColors(background: string, mesh: string): void {
    this.colors = { background: rgbOf(background), mesh: rgbOf(mesh) };
    this.invalidate();
  }

  fit(): void {
    const aspect = this.parent.clientWidth / Math.max(1, this.parent.clientHeight) || 1;
    this.look(fitBox(this.low, this.high, axesOf(this.camera.direction).forward, aspect));
  }

  toBlob(): Promise<Blob> {
    return new Promise((resolve, reject) => {
      this.canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the browser made no picture"))));
    });
  }

  dispose(): void {
    this.ended.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.canvas.remove();
  }

  private look(camera: Camera): void {
    this.camera = camera;
    this.invalidate();
  }

  private invalidate(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.draw());
  }

  private resize(): void {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.canvas.width = Math.max(1, Math.round(this.parent.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.parent.clientHeight * ratio));
    this.invalidate();
  }

  private draw(): void {
    this.frame = 0;
    const { gl, program, colors, counts, camera } = this;
    const { right, up, forward } = axesOf(camera.direction);
    const uniform = (name: string) => gl.getUniformLocation(program, name);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.enable(gl.DEPTH_TEST);
    gl.clearColor(...colors.background, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.useProgram(program);
    gl.uniformMatrix4fv(uniform("view"), false, this.matrix(right, up, forward));
    for (const [name, vector] of Object.entries({ right, up, forward, color: colors.mesh })) gl.uniform3fv(uniform(name), vector);
    gl.uniform1f(uniform("size"), POINT_SIZE);
    gl.uniform1i(uniform("shaded"), counts.corners > 0 ? 1 : 0);
    if (counts.corners > 0) gl.drawElements(gl.TRIANGLES, counts.corners, gl.UNSIGNED_INT, 0);
    else gl.drawArrays(gl.POINTS, 0, counts.vertices);
  }

  /** An orthographic view in columns; its depth covers the bounds from every direction. */
  private matrix(right: Vec3, up: Vec3, forward: Vec3): number[] {
    const { target, height } = this.camera;
    const aspect = this.canvas.width / this.canvas.height;
    const reach = Math.hypot(...[0, 1, 2].map((i) => Math.max(Math.abs(this.low[i]! - target[i]!), Math.abs(this.high[i]! - target[i]!)))) || 1;
    const rows: [Vec3, number][] = [[right, 2 / (height * aspect)], [up, 2 / height], [forward, 1 / reach]];
    const columns = [0, 1, 2].flatMap((axis) => [...rows.map(([row, factor]) => row[axis]! * factor), 0]);
    const offset = rows.map(([row, factor]) => -factor * (row[0] * target[0] + row[1] * target[1] + row[2] * target[2]));
    return [...columns, ...offset, 1];
  }
}

function linkProgram(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]] as const) {
    const shader = gl.createShader(kind);
    if (!shader) throw new Error("the WebGL context is lost");
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? "no program");
  return program;
}

/** The corners of the finite points. */
export function boundsOf(vertices: Float32Array): [Vec3, Vec3] {
  const low = [Infinity, Infinity, Infinity];
  const high = [-Infinity, -Infinity, -Infinity];
  for (let index = 0; index < vertices.length; index++) {
    const value = vertices[index]!;
    if (!Number.isFinite(value)) continue;
    const axis = index % 3;
    if (value < low[axis]!) low[axis] = value;
    if (value > high[axis]!) high[axis] = value;
  }
  const isEmpty = low.some((value) => !Number.isFinite(value));
  return isEmpty ? [[-1, -1, -1], [1, 1, 1]] : [low as unknown as Vec3, high as unknown as Vec3];
}

function rgbOf(color: string): Vec3 {
  const [red = 0, green = 0, blue = 0] = (color.match(/[\d.]+/g) ?? []).map(Number);
  return [red / 255, green / 255, blue / 255];
}
