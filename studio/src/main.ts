// Starts the page: takes the token from the address, removes it there, and opens the socket.
import { mount } from "svelte";
import App from "./App.svelte";
import { Studio } from "./state.svelte.ts";
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

const build = document.querySelector<HTMLMetaElement>('meta[name="build"]')?.content ?? "";
const studio = new Studio(`ws://${location.host}/socket`, takeToken(), build);
mount(App, { target: document.getElementById("app")!, props: { studio } });
studio.start();
