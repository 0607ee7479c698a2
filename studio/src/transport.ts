// How messages travel: over a WebSocket from a page of the server, or over the channel of a notebook's widget.

export interface Transport {
  readonly isOpen: boolean;
  send(text: string): void;
}

export interface TransportEvents {
  opened(): void;
  received(data: string | ArrayBuffer): void;
  closed(): void;
}

export type OpenTransport = (events: TransportEvents) => Transport;

const PROTOCOL = "livegrad.studio.1";

/** A socket to the server of the page, which proves that it may connect by its token. */
export function webSocket(url: string, token: string): OpenTransport {
  return (events) => {
    const socket = new WebSocket(url, [PROTOCOL, `token.${token}`]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => events.opened();
    socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => events.received(event.data);
    socket.onclose = () => events.closed();
    return {
      get isOpen() {
        return socket.readyState === WebSocket.OPEN;
      },
      send: (text) => socket.send(text),
    };
  };
}

/** What anywidget passes to a widget, as far as it is used here. */
export interface WidgetModel {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: "msg:custom", callback: (content: WidgetMessage, buffers: DataView[]) => void): void;
  off(event: "msg:custom", callback: (content: WidgetMessage, buffers: DataView[]) => void): void;
}

/** A message for one view of the widget; a binary one is in the first buffer. */
export interface WidgetMessage {
  page?: string;
  text?: string;
}

/** The channel of a widget. A widget may be shown in several places, which are pages of their own. */
export function widgetChannel(model: WidgetModel, page: string, ended: AbortSignal): OpenTransport {
  return (events) => {
    const receive = (content: WidgetMessage, buffers: DataView[]): void => {
      if (content.page !== page) return;
      const [first] = buffers ?? [];
      if (first) events.received(new Uint8Array(first.buffer, first.byteOffset, first.byteLength).slice().buffer);
      else if (content.text !== undefined) events.received(content.text);
    };
    model.on("msg:custom", receive);
    let isOpen = true;
    ended.addEventListener("abort", () => {
      isOpen = false;
      model.send({ page, leave: true });
      model.off("msg:custom", receive);
    });
    queueMicrotask(() => events.opened());
    return {
      get isOpen() {
        return isOpen;
      },
      send: (text) => model.send({ page, text }),
    };
  };
}
