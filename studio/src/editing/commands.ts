// Everything that a key or the context menu can do: one table, which also makes the sheet of shortcuts.
import type { Studio } from "../state.svelte.ts";
import type { Actions } from "./actions.ts";

export interface Command {
  label: string;
  keys: string; // "Ctrl+Shift+G"; on a Mac, Ctrl also means the command key
  run: () => void;
  isEnabled: () => boolean;
}

/** What commands do outside of the graph. */
export interface Surroundings {
  openMenu: () => void;
  fit: () => void;
  chooseAll: () => void;
  show: (dialog: "find" | "history" | "frames" | "shortcuts") => void;
}

export function makeCommands(studio: Studio, actions: Actions, page: Surroundings): Command[] {
  const always = () => true;
  const mayEdit = () => studio.may("edit");
  const hasChosen = () => mayEdit() && studio.chosen.size > 0;
  const chosen = () => (studio.chosen.size === 1 ? studio.blocks.get([...studio.chosen][0] ?? "") : undefined);
  const group = () => (chosen()?.inner[0] ? chosen() : undefined);
  const command = (label: string, keys: string, run: () => unknown, isEnabled: () => boolean): Command => ({
    label, keys, run: () => void run(), isEnabled,
  });
  return [
    command("Add a block", "Insert", page.openMenu, mayEdit),
    command("Copy", "Ctrl+C", () => actions.copy(), () => studio.chosen.size > 0),
    command("Cut", "Ctrl+X", () => actions.cut(), hasChosen),
    command("Paste", "Ctrl+V", () => actions.paste(), mayEdit),
    command("Duplicate", "Ctrl+D", () => actions.duplicate(), hasChosen),
    command("Remove", "Delete", () => actions.remove(), hasChosen),
    command("Remove and bridge the wires", "Ctrl+Delete", () => actions.dissolve(), hasChosen),
    command("Group", "Ctrl+G", () => actions.group(), hasChosen),
    command("Ungroup", "Ctrl+Shift+G", () => actions.ungroup(), () => mayEdit() && chosen()?.kind === "composite"),
    command("Enter the group", "Ctrl+ArrowDown", () => studio.enter(group()?.inner[0]?.graph ?? studio.graph), () => group() !== undefined),
    command("Leave the group", "Ctrl+ArrowUp", () => studio.leaveGraph(), () => studio.graph !== studio.root),
    command("Select all", "Ctrl+A", page.chooseAll, always),
    command("Align left", "Shift+ArrowLeft", () => actions.align("left"), hasChosen),
    command("Align right", "Shift+ArrowRight", () => actions.align("right"), hasChosen),
    command("Align top", "Shift+ArrowUp", () => actions.align("top"), hasChosen),
    command("Align bottom", "Shift+ArrowDown", () => actions.align("bottom"), hasChosen),
    command("Move left", "ArrowLeft", () => actions.nudge(-1, 0), hasChosen),
    command("Move right", "ArrowRight", () => actions.nudge(1, 0), hasChosen),
    command("Move up", "ArrowUp", () => actions.nudge(0, -1), hasChosen),
    command("Move down", "ArrowDown", () => actions.nudge(0, 1), hasChosen),
    command("Arrange the graph", "Ctrl+Shift+L", () => actions.arrange(), mayEdit),
    command("Show the selection, or all", "Home", page.fit, always),
    command("Minimap", "Ctrl+Shift+M", () => (studio.showsMinimap = !studio.showsMinimap), always),
    command("Find a block", "Ctrl+F", () => page.show("find"), always),
    command("Undo", "Ctrl+Z", () => studio.travel("undo"), () => mayEdit() && studio.history.undo !== null),
    command("Redo", "Ctrl+Shift+Z", () => studio.travel("redo"), () => mayEdit() && studio.history.redo !== null),
    command("Save the document", "Ctrl+S", () => studio.request({ type: "save" }), () => mayEdit() && studio.history.document !== undefined),
    command("History", "Ctrl+Shift+H", () => page.show("history"), always),
    command("Why did blocks run?", "Ctrl+Shift+Y", () => page.show("frames"), always),
    command("Play or pause", "Space", () => studio.clock({ playing: !studio.frame?.playing }), () => studio.may("tune") && studio.drives),
    command("Shortcuts", "?", () => page.show("shortcuts"), always),
  ];
}

/** The keys of an event, in the form of `Command.keys`. */
export function keysOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">): string {
  const name = event.key === " " ? "Space" : event.key.length === 1 ? event.key.toUpperCase() : event.key;
  const isSymbol = event.key.length === 1 && !/[a-z0-9 ]/i.test(event.key); // it may need Shift itself
  const modifiers = [
    event.ctrlKey || event.metaKey ? "Ctrl" : "",
    event.altKey ? "Alt" : "",
    event.shiftKey && !isSymbol ? "Shift" : "",
  ].filter(Boolean);
  return [...modifiers, name].join("+");
}

/** The keys as people read them. */
export function readable(keys: string): string {
  return keys
    .replace("ArrowDown", "↓").replace("ArrowUp", "↑").replace("ArrowLeft", "←").replace("ArrowRight", "→")
    .replaceAll("+", " ");
}
