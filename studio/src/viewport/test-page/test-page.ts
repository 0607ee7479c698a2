// A page with one viewport and a slider for each uniform of one number. The shader is `shader.json` beside the page, as
// `viewport_shader(part).to_json()` gives it; tests reach the viewport as `window.viewport`.
import { PartViewport, type PickedPoint, type Source, type ViewportShader } from "../index.ts";

interface TestWindow {
  viewport?: PartViewport;
  frames: { coarse: boolean; milliseconds: number }[];
  picked: (PickedPoint | null)[];
  sources: Source[];
  requests: number;
}

const page = window as unknown as TestWindow;
Object.assign(page, { frames: [], picked: [], sources: [], requests: 0 });
const query = new URLSearchParams(location.search);
const element = (id: string): HTMLElement => {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
};

/** Stands for a server: a picture of one colour. */
async function serverFrame({ width, height }: { width: number; height: number }): Promise<ImageBitmapSource> {
  page.requests += 1;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  if (context) {
    context.fillStyle = "rgb(20, 120, 220)";
    context.fillRect(0, 0, width, height);
  }
  return canvas.convertToBlob();
}

const shader = (await (await fetch("shader.json")).json()) as ViewportShader;
if (query.has("broken")) Object.assign(shader, { text: shader.text.replace("void main", "void main main") });
const viewport = new PartViewport(element("view"), {
  requestFrame: serverFrame,
  maxOperations: Number(query.get("limit") ?? 20_000),
  smooth: query.has("smooth"),
  onFrame: (frame) => page.frames.push(frame),
  onPick: (picked) => {
    page.picked.push(picked);
    element("status").textContent = picked ? picked.point.map((x) => x.toFixed(3)).join(", ") : "nothing";
  },
  onSource: (source) => {
    page.sources.push(source);
    element("status").textContent = source.kind === "client" ? "drawn here" : source.reason;
  },
});
for (const { name, size, value } of shader.uniforms) {
  if (size !== 1 || !value) continue;
  const start = value[0] ?? 0;
  const slider = document.createElement("input");
  const limits = { type: "range", min: String(start * 0.5), max: String(start * 1.5), step: "any" };
  Object.assign(slider, limits, { value: String(start), ariaLabel: name });
  slider.addEventListener("input", () => viewport.setUniforms({ [name]: slider.valueAsNumber }));
  const label = document.createElement("label");
  label.append(name, " ", slider);
  element("controls").append(label);
}
viewport.setShader(shader);
page.viewport = viewport;
