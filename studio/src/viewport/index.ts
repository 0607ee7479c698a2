// A viewport of a part on the client's GPU; see `types.ts` for what it is given and what it reports.
export { PartViewport } from "./part-viewport.ts";
export { moveOnScreen, project } from "./projection.ts";
export { DEFAULT_SETTINGS } from "./view-uniforms.ts";
export type * from "./types.ts";
