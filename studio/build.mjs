// Builds the page: `node build.mjs FOLDER` bundles src/main.ts with its styles into FOLDER.
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import * as esbuild from "esbuild";
import { compile, compileModule } from "svelte/compiler";

/** The licences of the packages that the page contains. */
async function licences(inputs) {
  const packages = new Set(inputs.map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
  const texts = [...packages].sort().map(async (name) => {
    const files = await readdir(join("node_modules", name));
    const file = files.find((entry) => /^licen[cs]e/i.test(entry));
    const { license, version } = JSON.parse(await readFile(join("node_modules", name, "package.json"), "utf8"));
    const text = file === undefined ? "" : await readFile(join("node_modules", name, file), "utf8");
    return `${name} ${version}: ${license}\n\n${text.trim()}\n`;
  });
  return (await Promise.all(texts)).join(`\n${"-".repeat(80)}\n\n`);
}

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
const result = await esbuild.build({
  entryPoints: { studio: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  outdir: folder,
  conditions: ["svelte", "browser"],
  mainFields: ["svelte", "browser", "module", "main"],
  plugins: [svelte],
  legalComments: "none", // licences.txt has them
  logLevel: "warning",
  metafile: true,
});
await writeFile(join(folder, "licences.txt"), await licences(Object.keys(result.metafile.inputs)));
for (const file of ["src/index.html", "src/icon.svg"]) await copyFile(file, join(folder, basename(file)));
