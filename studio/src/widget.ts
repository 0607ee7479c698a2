// The Studio in a cell of a notebook: what anywidget calls with its model and an element.
import { mount, unmount } from "svelte";
import App from "./App.svelte";
import { Studio } from "./state.svelte.ts";
import { widgetChannel, type WidgetModel } from "./transport.ts";

interface RenderProps {
  model: WidgetModel;
  el: HTMLElement;
}

/** Shows the Studio in `el`, within a shadow root: styles of the notebook and of the Studio do not meet. */
function render({ model, el }: RenderProps): () => void {
  const host = document.createElement("div");
  // `contain` keeps what is fixed to the page within the cell; JupyterLab's shortcuts stay out of it.
  host.style.cssText = `height:${Number(model.get("height")) || 560}px;contain:layout paint;resize:vertical;overflow:hidden;border-radius:8px`;
  host.dataset["lmSuppressShortcuts"] = "true";
  host.setAttribute("role", "region");
  host.setAttribute("aria-label", "livegrad Studio");
  const root = host.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = String(model.get("styles") ?? "");
  const target = document.createElement("div");
  target.id = "app";
  root.append(style, target);
  el.append(host);
  const ended = new AbortController();
  const transport = widgetChannel(model, crypto.randomUUID(), ended.signal);
  const studio = new Studio(transport, String(model.get("build")));
  const app = mount(App, { target, props: { studio, host } });
  studio.start();
  return () => {
    ended.abort();
    void unmount(app);
    host.remove();
  };
}

export default { render };
