// When to ask for the next update: after this one is on the screen, and so that drawing takes at most a third of the
// time. A page that draws a thousand nodes sees fewer values, and stays as quick as others.

const SHARE = 2; // pause for this many times the time that drawing took
const LONGEST_PAUSE = 1000; // milliseconds
const HIDDEN_PAUSE = 250; // a page that is hidden draws nothing

/** Calls `ready` when the next update may come. Called once an update, before it is shown. */
export function afterShown(ready: () => void): void {
  const started = performance.now();
  if (document.hidden) {
    setTimeout(ready, HIDDEN_PAUSE);
    return;
  }
  requestAnimationFrame(() => {
    const begun = performance.now();
    // A timer runs after the frame has been laid out and painted.
    setTimeout(() => {
      const drawing = Math.min(performance.now() - begun, performance.now() - started);
      if (drawing < 8) ready();
      else setTimeout(ready, Math.min(LONGEST_PAUSE, SHARE * drawing));
    });
  });
}
