// Builds the page: `node build.mjs FOLDER` bundles src/main.ts with its styles into FOLDER.
import { copyFile, mkdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import * as esbuild from "esbuild";
import { compile, compileModule } from "svelte/compiler";

const folder = process.argv[2] ?? "out";
const svelte = {
  name: "svelte",
  setup(build) {
    build.onLoad({ filter: /\.svelte$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      return { contents: compile(source, { filename: path, css: "injected", dev: false }).js.code, loader: "js" };
    });
    build.onLoad({ filter: /\.svelte\.(ts|js)$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const script = await esbuild.transform(source, { loader: path.endsWith("ts") ? "ts" : "js", target: "es2022" });
      return { contents: compileModule(script.code, { filename: path, dev: false }).js.code, loader: "js" };
    });
  },
};

await mkdir(folder, { recursive: true });
await esbuild.build({
  entryPoints: { studio: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  outdir: folder,
  conditions: ["svelte", "browser"],
  mainFields: ["svelte", "browser", "module", "main"],
  plugins: [svelte],
  legalComments: "eof",
  logLevel: "warning",
});
for (const file of ["src/index.html", "src/icon.svg"]) await copyFile(file, join(folder, basename(file)));
