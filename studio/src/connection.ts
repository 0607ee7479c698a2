// The connection to the engine: opens it again when it breaks, and pairs requests with answers.
import type { BinaryHeader, Problem, ServerMessage } from "./protocol.ts";
import type { OpenTransport, Transport } from "./transport.ts";

const SHORTEST_WAIT = 250;
const LONGEST_WAIT = 5000;

export class Rejection extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

export interface Receiver {
  opened(): void;
  lost(): void;
  message(message: ServerMessage): void;
  binary(header: BinaryHeader, payload: Uint8Array<ArrayBuffer>): void;
}

type Answer = { resolve: (value: Record<string, unknown>) => void; reject: (error: Error) => void };

export class Connection {
  private transport: Transport | null = null;
  private wait = SHORTEST_WAIT;
  private nextId = 1;
  private readonly answers = new Map<number, Answer>();

  constructor(
    private readonly connect: OpenTransport,
    private readonly receiver: Receiver,
  ) {}

  open(): void {
    this.transport = this.connect({
      opened: () => {
        this.wait = SHORTEST_WAIT;
        this.receiver.opened();
      },
      received: (data) => this.receive(data),
      closed: () => this.reopen(),
    });
  }

  send(message: Record<string, unknown>): void {
    if (this.transport?.isOpen) this.transport.send(JSON.stringify(message));
  }

  /** Sends a message that the server answers. */
  request(message: Record<string, unknown>): Promise<Record<string, unknown>> {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      if (!this.transport?.isOpen) {
        reject(new Error("the connection is lost"));
        return;
      }
      this.answers.set(id, { resolve, reject });
      this.send({ ...message, id });
    });
  }

  private reopen(): void {
    for (const answer of this.answers.values()) answer.reject(new Error("the connection is lost"));
    this.answers.clear();
    this.receiver.lost();
    setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  private receive(data: string | ArrayBuffer): void {
    if (typeof data !== "string") {
      const length = new DataView(data).getUint32(0, true);
      const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as BinaryHeader;
      this.receiver.binary(header, new Uint8Array(data, 4 + length));
      return;
    }
    const message = JSON.parse(data) as ServerMessage;
    if (message.type === "done" || message.type === "rejected") {
      const answer = message.id === null ? undefined : this.answers.get(message.id);
      if (answer !== undefined && message.id !== null) {
        this.answers.delete(message.id);
        if (message.type === "done") answer.resolve(message);
        else answer.reject(new Rejection(message.error));
        return;
      }
    }
    this.receiver.message(message);
  }
}
