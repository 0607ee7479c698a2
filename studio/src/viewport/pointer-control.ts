// Turns pointer, wheel and key events of an element into camera moves: drag to orbit, right drag or Shift to pan, wheel
// or pinch to zoom, arrow keys, plus and minus; a click picks.
import { orbit, pan, zoom } from "./camera.ts";
import type { Camera } from "./types.ts";

export interface PointerTarget {
  camera: () => Camera;
  move: (camera: Camera) => void;
  click: (x: number, y: number) => void;
  fit: () => void;
}

const CLICK = 4; // pixels that a click may move
const TURN = 0.008; // radians a pixel

interface Place {
  readonly x: number;
  readonly y: number;
}

/** Listens until the signal aborts. */
export function listenToPointer(element: HTMLElement, target: PointerTarget, signal: AbortSignal): void {
  const pointers = new Map<number, Place>();
  let travelled = 0;
  const place = (event: MouseEvent): Place => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const fromMiddle = ({ x, y }: Place): readonly [number, number] => {
    const { clientWidth, clientHeight } = element;
    return [(x - clientWidth / 2) / clientHeight, (clientHeight / 2 - y) / clientHeight];
  };
  const on = <Name extends keyof HTMLElementEventMap>(
    name: Name,
    handle: (event: HTMLElementEventMap[Name]) => void,
  ): void => element.addEventListener(name, handle, { signal, passive: false });

  on("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    if (pointers.size === 0) travelled = 0;
    pointers.set(event.pointerId, place(event));
  });
  on("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = place(event);
    const [right, down] = [now.x - before.x, now.y - before.y];
    travelled += Math.hypot(right, down);
    if (pointers.size === 2) target.move(pinch(pointers, event.pointerId, now, element, target.camera(), fromMiddle));
    else if (travelled > CLICK) target.move(drag(event, target.camera(), right, down, element.clientHeight));
    pointers.set(event.pointerId, now);
  });
  const release = (event: PointerEvent, clicked: boolean): void => {
    const last = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    const isClick = clicked && travelled <= CLICK && event.button === 0 && pointers.size === 0;
    if (isClick && last) target.click(last.x, last.y);
  };
  on("pointerup", (event) => release(event, true));
  on("pointercancel", (event) => release(event, false));
  on("contextmenu", (event) => event.preventDefault());
  on("dblclick", () => target.fit());
  on("wheel", (event) => {
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const factor = Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * unit * 0.0015)));
    target.move(zoom(target.camera(), factor, ...fromMiddle(place(event))));
  });
  on("keydown", (event) => {
    const moved = key(event, target.camera());
    if (moved === null && event.key !== "Home") return;
    event.preventDefault();
    if (moved) target.move(moved);
    else target.fit();
  });
}

function drag(event: PointerEvent, camera: Camera, right: number, down: number, height: number): Camera {
  const pans = event.shiftKey || (event.buttons & 6) !== 0;
  return pans ? pan(camera, -right / height, down / height) : orbit(camera, -right * TURN, -down * TURN);
}

function pinch(
  pointers: ReadonlyMap<number, Place>,
  moving: number,
  now: Place,
  element: HTMLElement,
  camera: Camera,
  fromMiddle: (place: Place) => readonly [number, number],
): Camera {
  const before = pointers.get(moving) ?? now;
  const other = [...pointers].find(([id]) => id !== moving)?.[1] ?? now;
  const distance = (a: Place): number => Math.max(1, Math.hypot(a.x - other.x, a.y - other.y));
  const height = element.clientHeight;
  const moved = pan(camera, -(now.x - before.x) / 2 / height, (now.y - before.y) / 2 / height);
  const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
  return zoom(moved, distance(before) / distance(now), ...fromMiddle(middle));
}

function key(event: KeyboardEvent, camera: Camera): Camera | null {
  const arrows: Record<string, readonly [number, number]> = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, 1],
    ArrowDown: [0, -1],
  };
  const arrow = arrows[event.key];
  if (arrow && event.shiftKey) return pan(camera, arrow[0] * 0.05, arrow[1] * 0.05);
  if (arrow) return orbit(camera, arrow[0] * 0.1, arrow[1] * 0.1);
  if (event.key === "+" || event.key === "=") return zoom(camera, 0.85);
  return event.key === "-" ? zoom(camera, 1 / 0.85) : null;
}
