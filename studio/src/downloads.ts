// Saves files that the page has made or received: the browser asks where, so that no server chooses a path.

export function saveBlob(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\p{L}\p{N}._ -]/gu, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
