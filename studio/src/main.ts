// Starts the page of the server: takes the token from the address, removes it there, and opens the socket. A notebook
// loads the same file, and calls what it exports.
import { mount } from "svelte";
import App from "./App.svelte";
import { Studio } from "./state.svelte.ts";
import { webSocket } from "./transport.ts";
import widget from "./widget.ts";
import "@xyflow/svelte/dist/style.css";
import "./theme.css";

const TOKEN = "livegrad.studio.token";

function takeToken(): string {
  const token = location.hash.slice(1);
  if (token !== "") {
    // Of this tab only, so that a reload works and no other page sees it.
    sessionStorage.setItem(TOKEN, token);
    history.replaceState(null, "", location.pathname);
    return token;
  }
  return sessionStorage.getItem(TOKEN) ?? "";
}

const build = document.querySelector<HTMLMetaElement>('meta[name="livegrad-studio"]')?.content;
const target = document.getElementById("app");
if (build !== undefined && target) {
  const studio = new Studio(webSocket(`ws://${location.host}/socket`, takeToken()), build);
  mount(App, { target, props: { studio } });
  studio.start();
}

export default widget;
