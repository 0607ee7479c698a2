// Problems as text.
import type { Problem } from "./protocol.ts";

/** A problem as one sentence. */
export function describeProblem(problem: Problem): string {
  const details = [
    problem.expected && `expected ${problem.expected}`,
    problem.found && `found ${problem.found}`,
  ].filter(Boolean);
  const text = details.length > 0 ? `${problem.message}: ${details.join(", ")}` : problem.message;
  return problem.help ? `${text}; ${problem.help}` : text;
}
