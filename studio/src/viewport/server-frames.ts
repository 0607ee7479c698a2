// Pictures that the server draws, on a canvas of their own: one request at a time, and then the newest.
import type { FrameRequest } from "./types.ts";

export class ServerFrames {
  private waiting: FrameRequest | null = null;
  private busy = false;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly draw: (request: FrameRequest) => Promise<ImageBitmapSource>,
    private readonly onFrame: (coarse: boolean, milliseconds: number) => void,
    private readonly onError: (reason: string) => void,
  ) {}

  request(request: FrameRequest): void {
    this.waiting = request;
    if (!this.busy) void this.run();
  }

  cancel(): void {
    this.waiting = null;
  }

  private async run(): Promise<void> {
    this.busy = true;
    while (this.waiting) {
      const request = this.waiting;
      this.waiting = null;
      const started = performance.now();
      try {
        const picture = await createImageBitmap(await this.draw(request));
        this.canvas.width = picture.width;
        this.canvas.height = picture.height;
        this.canvas.getContext("2d")?.drawImage(picture, 0, 0);
        picture.close();
        this.onFrame(request.coarse, performance.now() - started);
      } catch (error) {
        this.onError(error instanceof Error ? error.message : String(error));
      }
    }
    this.busy = false;
  }
}
