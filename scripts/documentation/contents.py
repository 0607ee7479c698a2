"""The contents of the site: its chapters, and which public name stands on which page of the reference.

In: nothing. Out: `CHAPTERS` and `PAGES`, read by the build and by `reference.py`. A section takes names by the module
that defines them (the section that names it most closely), or one by one; a name that nobody takes is an error.
"""

from dataclasses import dataclass

TENSOR = "livegrad.tensors"
FUNCTION = "livegrad.frontend.function"
DIFFERENTIABLE = "livegrad.frontend.differentiable"
CONTEXT = "livegrad.contexts"
ASSEMBLY = "livegrad.implicit"
BLOCK = "livegrad.live.blocks"


CHAPTERS = {
    "Start": {
        "Installation": "installation.md",
        "Ten minutes": "tutorial.md",
        "Five small programs": "recipes.md",
        "Examples": "examples.md",
        "Questions and answers": "questions.md",
    },
    "Guides": {
        "Tensors": "tensors.md",
        "Functions": "functions.md",
        "Kernels: coming from Numba, Taichi and Warp": "kernels.md",
        "Contexts": "context.md",
        "Assemblies and parts": "assemblies.md",
        "The live engine": "engine.md",
        "The Studio": "studio.md",
        "Three minutes with the Studio": "studio-walkthrough.md",
        "CUDA": "cuda.md",
        "Derivatives": "derivatives.md",
        "Custom rules, checkpointing, batching": "transformations.md",
        "Performance": "performance.md",
        "Command line": "command-line.md",
    },
    "Coming from": {
        "JAX": "from-jax.md",
        "PyTorch": "from-pytorch.md",
        "Warp": "from-warp.md",
        "Slang": "from-slang.md",
        "libfive and Gladius": "from-libfive.md",
    },
    "Reference": {"Every public name": "reference/index.md", "Diagnostics of functions": "diagnostics.md"},
    "How it is built": {
        "The design": "design.md",
        "From scratch, in 300 lines": "from-scratch.md",
        "The lazy graph, call by call": "lazy-graph.md",
        "Accuracy of vector math": "vector-math.md",
        "Benchmarks": "benchmarks.md",
        "Contributing": "contributing.md",
        "Changelog": "changelog.md",
    },
}


@dataclass(frozen=True)
class Section:
    """A heading, and the names below it: those that `modules` (or modules inside them) define, and `names`."""

    title: str
    modules: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def closeness(self, module: str) -> int:
        """How much of a module's name the closest of `modules` covers; 0 if none does."""
        return max((len(own) for own in self.modules if f"{module}.".startswith(f"{own}.")), default=0)


@dataclass(frozen=True)
class Page:
    """A page of the reference: `livegrad`'s names in sections, and whole namespaces such as `livegrad.linalg`."""

    file: str
    title: str
    opening: str
    sections: tuple[Section, ...] = ()
    namespaces: tuple[str, ...] = ()


SCALARS = (
    "bool", "bool_", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16", "float16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
SHAPED = (
    "vec", "vec2", "vec3", "vec4", "dvec2", "dvec3", "dvec4", "ivec2", "ivec3", "ivec4", "mat", "mat2", "mat3", "mat4",
    "dmat2", "dmat3", "dmat4", "array", "tensor",
)  # fmt: skip

PAGES = (
    Page(
        "reference/tensors.md",
        "Tensors",
        "Lazy arrays that follow the Array API. The guide is [Tensors](../tensors.md).",
        (
            Section("The tensor and its graph", (TENSOR,)),
            Section("Creating tensors", (f"{TENSOR}.creation",)),
            Section("Arithmetic", (f"{TENSOR}.arithmetic", f"{TENSOR}.transcendental", f"{TENSOR}.neural")),
            Section("Comparison, logic and bits", (f"{TENSOR}.comparison",)),
            Section("Reductions", (f"{TENSOR}.reductions", f"{TENSOR}.trailing")),
            Section("Products", (f"{TENSOR}.products", f"{TENSOR}.einsum")),
            Section("Shapes", (f"{TENSOR}.manipulation",)),
            Section("Indexing", (f"{TENSOR}.selection",)),
            Section("Searching, sorting and sets", tuple(f"{TENSOR}.{m}" for m in ("searching", "sets", "sorting"))),
            Section("Element types", (f"{TENSOR}.data_types",)),
            Section("Constants", (), ("e", "inf", "nan", "newaxis", "pi", "__array_api_version__")),
        ),
    ),
    Page(
        "reference/transforms.md",
        "Transforms and execution",
        "Transforms take a function and return another; execution runs graphs.",
        (
            Section(
                "Derivatives",
                tuple(f"{TENSOR}.{module}" for module in ("transforms", "custom_rules", "gradient_checks")),
            ),
            Section(
                "Compiling and batching",
                (f"{TENSOR}.jit", f"{TENSOR}.vmapping", f"{TENSOR}.pytrees", f"{TENSOR}.tree_functions"),
            ),
            Section("Control flow", (f"{TENSOR}.control_flow",)),
            Section("Execution and caching", (f"{TENSOR}.execute", "livegrad.lazy.eviction")),
            Section("Files and other libraries", (f"{TENSOR}.storage", f"{TENSOR}.interop")),
        ),
    ),
    Page("reference/linalg.md", "lg.linalg", "Linear algebra of the Array API.", (), ("linalg",)),
    Page("reference/fft.md", "lg.fft", "Fourier transforms of the Array API.", (), ("fft",)),
    Page("reference/nn.md", "lg.nn", "Building blocks of neural networks.", (), ("nn",)),
    Page("reference/optim.md", "lg.optim", "Optimizers over any pytree of tensors.", (), ("optim",)),
    Page("reference/random.md", "lg.random", "Random numbers that depend only on a key.", (), ("random",)),
    Page(
        "reference/functions.md",
        "Functions",
        "Typed Python, compiled from its source. The guide is [Functions](../functions.md).",
        (
            Section(
                "Capturing functions",
                (FUNCTION, f"{DIFFERENTIABLE}.plain_function", f"{DIFFERENTIABLE}.differentiable_function"),
            ),
            Section("Derivatives", (f"{DIFFERENTIABLE}.derivative_operators", f"{DIFFERENTIABLE}.pair"), ("no_diff",)),
            Section("Arrays", (), ("inout", "parallel")),
            Section(
                "Structs, interfaces and differentials",
                (DIFFERENTIABLE,),
                ("dadd", "dmul", "dzero"),
            ),
            Section("Functions of vectors and numbers", (f"{FUNCTION}.function_library",)),
            Section("Types by name", (), SHAPED),
            Section("Scalar types", (), SCALARS),
        ),
    ),
    Page(
        "reference/contexts.md",
        "Contexts",
        "Graphs whose nodes declare what they read. The guide is [Contexts](../context.md).",
        (
            Section("Graphs and programs", (CONTEXT,)),
            Section(
                "Declaring nodes", (f"{CONTEXT}.declare", f"{CONTEXT}.function_nodes", f"{CONTEXT}.context_tensors")
            ),
            Section("Features", ("livegrad.ops.context",)),
            Section("Limits and disk", ("livegrad.contexts.cache",)),
        ),
    ),
    Page(
        "reference/assemblies.md",
        "Assemblies and parts",
        "Node graphs and parts. The guide is [Assemblies](../assemblies.md).",
        (
            Section(
                "Assemblies",
                (ASSEMBLY,),
            ),
            Section("Meaning", tuple(f"{ASSEMBLY}.nodes.{m}" for m in ("to_ir", "lower_gradient", "to_c"))),
            Section("Parts", (f"{ASSEMBLY}.bodies",)),
            Section(
                "Pictures, slices, meshes",
                (f"{ASSEMBLY}.bodies.rendering", f"{ASSEMBLY}.bodies.slicing", f"{ASSEMBLY}.meshing"),
            ),
            Section("Files", ("livegrad.implicit.formats",)),
        ),
        ("shapes",),
    ),
    Page(
        "reference/engine.md",
        "The live engine",
        "Blocks in one plan that you can edit while it runs. The guide is [The live engine](../engine.md).",
        (
            Section("The engine", ("livegrad.live",)),
            Section("Blocks", (BLOCK, "livegrad.live.graph.block", "livegrad.live.graph.composite")),
            Section("Regions", ("livegrad.live.graph.regions",)),
            Section("External memory", ("livegrad.live.graph.sources",)),
            Section("Documents", ("livegrad.live.documents",)),
            Section("Recording and replaying", ("livegrad.live.recording",)),
            Section("The Studio", ("livegrad.tools.studio",)),
        ),
    ),
    Page(
        "reference/errors.md",
        "Errors",
        "Every error of livegrad is a `LivegradError` with `.what`, `.where`, `.expected`, `.found`, `.help`, `.code`. "
        "Errors in captured functions have codes: see the [diagnostics](../diagnostics.md).",
        (
            Section(
                "Errors",
                (
                    "livegrad.diagnostics",
                    f"{TENSOR}.errors",
                    f"{FUNCTION}.function_errors",
                    f"{CONTEXT}.errors",
                    f"{ASSEMBLY}.nodes.errors",
                ),
                ("EngineError", "FormatError", "FormatWarning", "PartWarning"),
            ),
        ),
    ),
    Page(
        "reference/ir.md",
        "The value IR",
        "Interned nodes, types, and one record per op. [The design](../design.md) explains how they fit together.",
        (
            Section("Nodes and functions", ("livegrad.ir",)),
            Section("Running", ("livegrad.runtime",)),
            Section("Text", ("livegrad.ir.text",)),
            Section("Types", ("livegrad.ir.types",)),
            Section("Maps", ("livegrad.ops.maps",)),
        ),
        ("ir.types",),
    ),
    Page("reference/ops.md", "The op table", "One record per op, read by every pass and backend.", (), ("ops",)),
)
