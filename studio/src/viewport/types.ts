// What a viewport is given and what it reports. `part-viewport.ts` has `PartViewport`; the page builds on these types.

export type Vec3 = readonly [number, number, number];

/** A uniform of a shader: `name` is the name of the parameter, `identifier` its name in the shader. */
export interface ShaderUniform {
  readonly name: string;
  readonly identifier: string;
  readonly kind: "float" | "int" | "uint" | "bool";
  readonly size: number;
  readonly offset: number;
  readonly value: readonly number[] | null;
}

/** A table that a shader reads; `pixels` is base64 text of 32-bit words, row by row. */
export interface ShaderTexture {
  readonly name: string;
  readonly identifier: string;
  readonly kind: "float" | "int" | "uint";
  readonly width: number;
  readonly height: number;
  readonly pixels: string;
}

/** What `ViewportShader.to_json()` returns in Python. */
export interface ViewportShader {
  readonly language: "GLSL";
  readonly text: string;
  readonly functions: Readonly<Record<string, string>>;
  /** What the functions of the part have once calls are inlined: it says how long compilers take. */
  readonly operations: number;
  readonly uniforms: readonly ShaderUniform[];
  readonly textures: readonly ShaderTexture[];
  /** The corners of the bounding box. */
  readonly low: Vec3;
  readonly high: Vec3;
  /** A bound of the length of the gradient in the box, which limits the steps along a ray. */
  readonly steepness: number;
  /** Parameters whose slope `display` may show: how far the surface moves along its normal. */
  readonly slopes: readonly string[];
}

/** An orthographic view: `height` is that of the picture, in units of the part. */
export interface Camera {
  readonly target: Vec3;
  readonly direction: Vec3;
  readonly height: number;
}

/** The half space `normal · p <= offset` that is kept. */
export interface SectionPlane {
  readonly normal: Vec3;
  readonly offset: number;
}

/** What colours show: light, normals, the length of the gradient, or the slope of a parameter. */
export type Display = "shaded" | "normals" | "gradient" | { readonly slope: string };

export interface ViewportSettings {
  readonly section: SectionPlane | null;
  /** Whether the section plane shows the field. */
  readonly field: boolean;
  /** The distance of iso-lines of the field; 0 chooses one. */
  readonly spacing: number;
  readonly display: Display;
  /** The value that has the strongest colour in the displays of gradients and slopes. */
  readonly scale: number;
  readonly plate: boolean;
  /** From 0 to 1, as in sRGB. */
  readonly color: Vec3;
  readonly background: Vec3;
}

/** A picture that the server shall draw. */
export interface FrameRequest {
  readonly camera: Camera;
  readonly settings: ViewportSettings;
  readonly uniforms: Readonly<Record<string, readonly number[]>>;
  readonly width: number;
  readonly height: number;
  /** Whether the picture will be replaced soon, because the view is moving. */
  readonly coarse: boolean;
}

export interface PickedPoint {
  readonly point: Vec3;
  readonly normal: Vec3;
  /** In CSS pixels from the upper left corner of the canvas. */
  readonly x: number;
  readonly y: number;
}

/** Who draws: the client's GPU, or the server, and then why. */
export type Source = { readonly kind: "client" } | { readonly kind: "server"; readonly reason: string };

/** The values of uniforms, by the names of their parameters. */
export type UniformValues = Readonly<Record<string, number | readonly number[]>>;

export interface PartViewportOptions {
  /** Draws a picture where the client cannot. Without it, the canvas stays empty and `onSource` has the reason. */
  readonly requestFrame?: (request: FrameRequest) => Promise<ImageBitmapSource>;
  /** The surface at a pixel where the client does not draw; a click there picks nothing without it. */
  readonly requestPick?: (request: FrameRequest, x: number, y: number) => Promise<PickedPoint | null>;
  readonly onCamera?: (camera: Camera) => void;
  /** A click that was not a drag; null where there is no surface. */
  readonly onPick?: (picked: PickedPoint | null) => void;
  readonly onSource?: (source: Source) => void;
  /** After a picture was drawn, with its time in milliseconds. */
  readonly onFrame?: (frame: { readonly coarse: boolean; readonly milliseconds: number }) => void;
  /** Shaders with more operations go to the server without being compiled. */
  readonly maxOperations?: number;
  /** Whether a resting picture gets four samples for each pixel, if the GPU is fast enough. The default is true. */
  readonly smooth?: boolean;
  readonly settings?: Partial<ViewportSettings>;
}

/** The public interface of a viewport; `PartViewport` implements it. */
export interface Viewport {
  /** Replaces the part. Keeps the camera where the new box is the same. */
  setShader(shader: ViewportShader): void;
  /** Sets uniforms by the names of their parameters, and draws again. Compiles nothing. */
  setUniforms(values: UniformValues): void;
  /** Sets the bound of the gradient and the box, which may change with parameters. */
  setBounds(bounds: { readonly steepness?: number; readonly low?: Vec3; readonly high?: Vec3 }): void;
  setSettings(settings: Partial<ViewportSettings>): void;
  setCamera(camera: Partial<Camera>): void;
  readonly camera: Camera;
  readonly settings: ViewportSettings;
  readonly source: Source;
  /** Looks along the direction, with the whole part in view. */
  fit(direction?: Vec3): void;
  /** The surface at a pixel, in CSS pixels from the upper left corner. */
  pick(x: number, y: number): Promise<PickedPoint | null>;
  /** The picture as it is now. */
  toBlob(): Promise<Blob>;
  /** Frees the GPU's memory and removes the listeners. */
  dispose(): void;
}
