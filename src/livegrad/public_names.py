"""Lazy loading of public names: tables of names by module. `import livegrad` loads only the value IR and its ops.

Common names are attributes of `livegrad` itself; the others belong to four groups: `lg.ir`, `lg.live`, `lg.contexts`
and `lg.implicit`. The tables list each name under the module that defines it, as `name` or `public=internal`. The
`__init__.pyi` of each group lists the same names for type checkers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

_IR = {
    "livegrad.ir": "types",
    "livegrad.ir.types": "Array Matrix Struct Tuple Vector",
    "livegrad.ir.dimension": "Dimension",
    "livegrad.ir.node": "Function Node",
    "livegrad.ir.function": "trace",
    "livegrad.ir.leaves": "constant",
    "livegrad.ir.text": "parse_function print_function",
    "livegrad.ops.maps": "map_over",
    "livegrad.runtime.cpu": "compile=compile_function",
    "livegrad.runtime.reference": "evaluate",
}
_LIVE = {
    "livegrad.live.blocks": """
        append_block AppendBlock block captured_block cuda_block edit fold_neighbours GradientBlock load_cuda_block
        neighbour_block NeighbourBlock neighbours watch watch_cuda""",
    "livegrad.live.blocks.pull": "pull PullResult",
    "livegrad.live.blocks.rollout": "FrameGradient",
    "livegrad.live.documents": "Document DocumentError load_document",
    "livegrad.live.engine": "Engine",
    "livegrad.live.frame": "EngineError Frame",
    "livegrad.live.graph.append_buffer": "AppendBuffer",
    "livegrad.live.graph.block": "Block State",
    "livegrad.live.graph.composite": "Composite",
    "livegrad.live.graph.control": "Control",
    "livegrad.live.graph.regions": "For If IfElse Switch While",
    "livegrad.live.graph.sources": "ExternalBuffer",
    "livegrad.live.history": "Gesture History HistoryEntry",
    "livegrad.live.parameters": "PinParameter",
    "livegrad.live.presets": "Presets",
    "livegrad.live.profile": "chrome_trace",
    "livegrad.live.recording": "Difference record Recording Replay replay",
    "livegrad.live.update.diff_plans": "Level",
}
_CONTEXTS = {
    "livegrad.contexts.cache.disk": "DiskCache",
    "livegrad.contexts.cache.store": "CacheLimits",
    "livegrad.contexts.context_graph": "ContextGraph",
    "livegrad.contexts.context_tensors": "context_tensor tensor_function",
    "livegrad.contexts.context_values": "Context",
    "livegrad.contexts.declare": "context_node Extract ExtractAll Inject Modify Scoped",
    "livegrad.contexts.errors": "ContextError",
    "livegrad.contexts.function_nodes": "context_function",
    "livegrad.contexts.guard": "NodeContext",
    "livegrad.ops.context": "context register_feature",
}
_IMPLICIT = {
    "livegrad.implicit.nodes.assembly": "Assembly",
    "livegrad.implicit.nodes.builder": "FunctionBuilder",
    "livegrad.implicit.nodes.to_c": "to_cuda to_opencl",
    "livegrad.implicit.nodes.errors": "AssemblyError PartWarning",
    "livegrad.implicit.nodes.expression": "add_expression",
    "livegrad.implicit.nodes.from_ir": "add_ir_function",
    "livegrad.implicit.nodes.lower_gradient": "lower_function_gradient",
    "livegrad.implicit.nodes.ports": "PortType",
    "livegrad.implicit.nodes.resources": """
        BeamLattice BuildItem ImageStack LevelSet TriangleMesh VolumeChannel VolumeData""",
    "livegrad.implicit.nodes.to_ir": "to_function",
    "livegrad.implicit.bodies": "shapes",
    "livegrad.implicit.bodies.clipping": "fit_bounds",
    "livegrad.implicit.bodies.level_sets": "parts",
    "livegrad.implicit.bodies.part": "Part part_of_function",
    "livegrad.implicit.bodies.part_assembly": "assembly_of_part",
    "livegrad.implicit.bodies.rendering": "render",
    "livegrad.implicit.bodies.slicing": "draw_plane Slice slice=slice_part",
    "livegrad.implicit.meshing.meshing": "mesh",
    "livegrad.implicit.shaders.shader": "Shader Texture Uniform",
    "livegrad.implicit.shaders.steepness": "steepness",
    "livegrad.implicit.shaders.to_shader": "to_glsl to_wgsl",
    "livegrad.implicit.shaders.viewport_shader": "viewport_shader ViewportShader",
    "livegrad.implicit.formats": """
        FormatError FormatWarning load_3mf load_stl load_vm save_3mf save_animation save_mesh save_png save_stl
        save_svg""",
}
_EVERYDAY = {
    # errors
    "livegrad.diagnostics": """
        CompileError DifferentiationError FileError KernelCheckError LivegradError MissingFileError ParseError
        TypeRuleError UsageError VerifyError""",
    "livegrad": "contexts implicit ir live ops",
    "livegrad.ir.types": "bf16 bool_ c128 c64 f16 f32 f64 i16 i32 i64 i8 u16 u32 u64 u8",
    "livegrad.lazy.eviction": "reset_stats set_cache_budget stats",
    # lazy tensors
    "livegrad.tools.studio.open_studio": "studio",
    "livegrad.tensors": "optim",
    "livegrad.tensors.gradient_checks": "check_gradients debug_nans",
    "livegrad.tensors.control_flow": "cond fori_loop scan switch while_loop",
    "livegrad.tensors.custom_rules": "custom_jvp custom_vjp",
    "livegrad.tensors.errors": """
        AxisError CallError DtypeError ExportError GraphMergeError GraphOrderError IndexRangeError NoDimensionsError
        NotANumberError NumberRangeError ShapeError""",
    "livegrad.tensors.execute": "clear_caches execute",
    "livegrad.tensors.tensor_graph": "Graph",
    "livegrad.tensors.handle": "Tensor",
    "livegrad.tensors.interop": "register_with_einops",
    "livegrad.tensors.jit": "jit",
    "livegrad.tensors.storage": "load save",
    "livegrad.tensors.trailing": "reduce_sum transpose",
    "livegrad.tensors.transforms": "checkpoint grad jvp stop_gradient value_and_grad vjp",
    "livegrad.tensors.pytrees": "register_pytree static_field",
    "livegrad.tensors.tree_functions": """
        ravel_pytree tree_flatten tree_leaves tree_map tree_map_with_path tree_reduce tree_structure tree_unflatten
        TreeStructure""",
    "livegrad.tensors.vmapping": "hessian jacfwd jacrev vmap",
    "livegrad.tensors.namespace": """
        __array_api_version__ __array_namespace_info__ abs acos acosh add all any arange argmax argmin argsort
        asarray asin asinh astype atan atan2 atanh bfloat16 bitwise_and bitwise_invert bitwise_left_shift bitwise_or
        bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_shapes broadcast_to can_cast ceil clip
        complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide
        dynamic_slice dynamic_update_slice e einsum empty empty_like equal erf exp expand_dims expm1 eye fft finfo
        flip float16 float32 float64 floor floor_divide fmod from_dlpack full full_like gelu greater greater_equal
        hypot iinfo imag inf int16 int32 int64
        int8 isdtype isfinite isin isinf isnan less less_equal linalg linspace log log10 log1p log2 log_softmax
        logaddexp logical_and logical_not logical_or logical_xor logsumexp matmul matrix_transpose max maximum mean
        meshgrid min minimum moveaxis multiply nan negative newaxis nextafter nn nonzero not_equal one_hot ones
        ones_like permute_dims pi positive pow prod random real reciprocal relu remainder repeat reshape result_type
        roll round searchsorted sigmoid sign signbit silu sin sinh softmax sort sqrt square squeeze stack std
        subtract sum take take_along_axis tan tanh tensordot tile top_k tril triu trunc uint16 uint32 uint64 uint8
        unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros zeros_like""",
    # captured functions
    "livegrad.frontend.differentiable.plain_function": "function",
    "livegrad.frontend.function.function_library": """
        bounded clamp copy cross detach determinant dot fract inverse length mix normalize parallel select smoothstep
        step unroll""",
    "livegrad.frontend.function.printing": "print=print_values",
    "livegrad.frontend.function.function_errors": "FunctionError",
    "livegrad.frontend.function.python_source": "run_source",
    "livegrad.frontend.differentiable": """
        bwd_diff dadd Derivative derivative_member Differentiable differentiable DifferentiableFunction dmul dzero
        fwd_diff interface NullDifferential prefer_checkpoint prefer_recompute remember_at_most""",
    "livegrad.frontend.differentiable.annotations": """
        array dmat2 dmat3 dmat4 dvec2 dvec3 dvec4 inout ivec2 ivec3 ivec4 mat mat2 mat3 mat4 no_diff Pair pair tensor
        vec vec2 vec3 vec4""",
}
# Names of the groups that are also attributes of `livegrad`.
_IN_EVERYDAY = {
    "live": "block Block Composite Control Engine For If IfElse load_document State Switch While",
    "contexts": "context Context ContextGraph",
    "implicit": """
        Assembly load_3mf load_stl load_vm mesh Part parts render save_3mf save_animation save_mesh save_png save_stl
        save_svg shapes slice to_glsl to_wgsl""",
}
GROUPS = {"ir": _IR, "live": _LIVE, "contexts": _CONTEXTS, "implicit": _IMPLICIT}

# Modules with classes whose constructors explain wrong arguments. IR classes are constructed too often to be wrapped.
_CONSTRUCTORS_EXPLAINED = (
    "livegrad.contexts.", "livegrad.implicit.", "livegrad.live.engine", "livegrad.live.graph.append_buffer",
    "livegrad.live.graph.block", "livegrad.live.graph.composite", "livegrad.live.graph.control",
    "livegrad.live.graph.regions",
    "livegrad.tensors.tensor_graph",
)  # fmt: skip
# Methods of engines are called too often to be wrapped.
_METHODS_EXPLAINED = (
    "livegrad.contexts.context_graph", "livegrad.implicit.bodies", "livegrad.implicit.meshing",
    "livegrad.implicit.nodes",
)  # fmt: skip


@cache
def names_of(group: str = "") -> dict[str, tuple[str, str]]:
    """The public names of a group, or of `livegrad` itself, each with its module and its name in that module."""
    if group:
        return _read_table(GROUPS[group])
    names = _read_table(_EVERYDAY)
    for other_group, listed in _IN_EVERYDAY.items():
        names |= {name: names_of(other_group)[name] for name in listed.split()}
    return names


def _read_table(table: dict[str, str]) -> dict[str, tuple[str, str]]:
    names: dict[str, tuple[str, str]] = {}
    for module, entries in table.items():
        for entry in entries.split():
            public, _, internal = entry.partition("=")
            names[public] = (module, internal or public)
    return names


def front_door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Builds `__getattr__`, `__dir__` and `__all__` for a package whose public names load on first use."""
    group = package.partition(".")[2]
    names = names_of(group)

    def load(name: str) -> Any:
        """Imports a public name and stores it in the package."""
        if name not in names:
            raise _missing_name_error(package, name)
        value = vars(sys.modules[package])[name] = _load(*names[name])
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *names}), list(names)


def _missing_name_error(package: str, name: str) -> AttributeError:
    what = f"module '{package}' has no attribute '{name}'"
    group = next((group for group in GROUPS if name in names_of(group)), None)
    advice = import_module("livegrad.diagnostics.other_names").name_of_function(name)
    if group is not None:
        advice = f"lg.{name}" if name in names_of() else f"lg.{group}.{name}"
    if advice is not None and not name.startswith("__"):
        what += f"; write {advice}"
    return AttributeError(what, name=name, obj=sys.modules[package])


def _load(module_name: str, internal: str) -> Any:
    if module_name == "livegrad":
        return import_module(f"livegrad.{internal}")
    module = import_module(module_name)
    if not hasattr(module, internal):
        import_module(f"{module_name}.{internal}")
    explain_calls = import_module("livegrad.diagnostics.explain_calls").explain_calls
    explain_calls(module, [internal])
    value = getattr(module, internal)
    if isinstance(value, ModuleType) and internal != "types":
        explain_calls(value, value.__all__)
        for member in (getattr(value, name) for name in value.__all__ if internal in ("optim", "shapes")):
            if isinstance(member, type):
                explain_calls(member, ["__init__"])
    elif isinstance(value, type) and value.__module__.startswith(_CONSTRUCTORS_EXPLAINED):
        explain_calls(value, ["__init__"])
        if value.__module__.startswith(_METHODS_EXPLAINED):
            explain_calls(value, [method for method in dir(value) if not method.startswith("_")])
    return value
