// The code editor: CodeMirror with Python, colours of the page, and problems at their lines.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Problem } from "../protocol.ts";
import { describeProblem } from "../problems.ts";

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--state)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--level3)" },
  { tag: tags.string, color: "var(--level1)" },
  { tag: tags.comment, color: "var(--dim)", fontStyle: "italic" },
  { tag: [tags.function(tags.variableName), tags.function(tags.definition(tags.variableName))], color: "var(--accent)" },
]);

const theme = EditorView.theme({
  "&": { backgroundColor: "var(--field)", color: "var(--text)", fontSize: "12.5px", maxHeight: "46vh" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace', lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--dim)", border: "none" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--line) 35%, transparent)" },
  "&.cm-focused": { outline: "2px solid var(--focus)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
});

export interface EditorOptions {
  parent: HTMLElement;
  text: string;
  label: string;
  isCode: boolean;
  onchange: (text: string) => void;
  onapply: () => void;
}

export class CodeEditor {
  private readonly view: EditorView;
  private readonly editable = new Compartment();

  constructor(options: EditorOptions) {
    const apply = () => {
      options.onapply();
      return true;
    };
    this.view = new EditorView({
      parent: options.parent,
      state: EditorState.create({
        doc: options.text,
        extensions: [
          options.isCode ? [lineNumbers(), lintGutter()] : [],
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          options.isCode ? highlightActiveLine() : [],
          EditorView.lineWrapping,
          python(),
          syntaxHighlighting(colors),
          theme,
          this.editable.of([]),
          EditorView.contentAttributes.of({ "aria-label": options.label }),
          keymap.of([
            { key: "Mod-Enter", run: apply },
            ...(options.isCode ? [] : [{ key: "Enter", run: apply }]),
            // Escape first, then Tab leaves the editor.
            { key: "Escape", run: (view: EditorView) => (view.contentDOM.blur(), true) },
            ...(options.isCode ? [indentWithTab] : []),
            ...defaultKeymap,
            ...historyKeymap,
          ]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) options.onchange(update.state.doc.toString());
          }),
        ],
      }),
    });
  }

  setEditable(isEditable: boolean): void {
    const extension = isEditable ? [] : [EditorState.readOnly.of(true), EditorView.editable.of(false)];
    this.view.dispatch({ effects: this.editable.reconfigure(extension) });
  }

  showProblems(problems: readonly Problem[]): void {
    const document = this.view.state.doc;
    const diagnostics = problems.map((problem): Diagnostic => {
      const line = document.line(Math.min(Math.max(1, problem.line), document.lines));
      return { from: line.from, to: line.to, severity: "error", message: describeProblem(problem) };
    });
    this.view.dispatch(setDiagnostics(this.view.state, diagnostics));
  }

  close(): void {
    this.view.destroy();
  }
}
