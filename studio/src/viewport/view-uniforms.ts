// The uniforms of a view, from its camera and settings.
import { axesOf } from "./camera.ts";
import type { ViewUniforms } from "./shader-program.ts";
import type { Camera, Vec3, ViewportSettings, ViewportShader } from "./types.ts";
import { length, roundDown, subtract } from "./vectors.ts";

export const DEFAULT_SETTINGS: ViewportSettings = {
  section: null,
  field: false,
  spacing: 0,
  display: "shaded",
  scale: 1,
  plate: true,
  color: [0.93, 0.66, 0.28],
  background: [0.96, 0.965, 0.975],
};

export interface Box {
  readonly low: Vec3;
  readonly high: Vec3;
}

/** The uniforms of a picture of `width` × `height` pixels. */
export function viewUniforms(
  shader: ViewportShader,
  box: Box & { readonly steepness: number },
  camera: Camera,
  settings: ViewportSettings,
  width: number,
  height: number,
  steps: number,
): ViewUniforms {
  const { right, up, forward } = axesOf(camera.direction);
  const { section } = settings;
  const spacing = settings.spacing > 0 ? settings.spacing : roundDown(length(subtract(box.high, box.low)) / 30);
  const footprint = Math.max(box.high[0] - box.low[0], box.high[1] - box.low[1]);
  return {
    lg_size: [width, height],
    lg_target: camera.target,
    lg_right: right,
    lg_up: up,
    lg_forward: forward,
    lg_pixel: camera.height / height,
    lg_low: box.low,
    lg_high: box.high,
    lg_steepness: box.steepness,
    lg_steps: steps,
    lg_section: section ? [...section.normal, section.offset] : [0, 0, 0, 0],
    lg_spacing: settings.field && section ? spacing : 0,
    lg_display: displayIndex(shader, settings),
    lg_scale: settings.scale,
    lg_plate: settings.plate && footprint > 0 ? roundDown(footprint / 4) : 0,
    lg_color: settings.color,
    lg_background: settings.background,
    lg_picked: [-1, -1],
  };
}

function displayIndex(shader: ViewportShader, { display }: ViewportSettings): number {
  if (typeof display === "string") return { shaded: 0, normals: 1, gradient: 2 }[display];
  const index = shader.slopes.indexOf(display.slope);
  return index < 0 ? 0 : 3 + index;
}
