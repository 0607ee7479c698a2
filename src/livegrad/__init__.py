"""livegrad: live, differentiable compute graphs.

Tensors are lazy and follow the Array API: `lg.asarray`, `lg.sum`, `x @ y`. Or write a function of the value IR with
`trace`, differentiate it with `jvp` or `vjp`, run it with `compile` (native code) or `evaluate` (the NumPy reference).
Parts are functions of position: `lg.load_3mf`, `lg.shapes`, `lg.render`, `lg.slice`, `lg.mesh`.

`import livegrad` loads the value IR and its ops. Every other name is loaded when it is first asked for; `_PLACES` says
from where, and `__init__.pyi` says the same to type checkers.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

from livegrad import ops as ops  # loaded now: it makes every op known to the IR

__version__ = "0.1.0"

# Every public name, under the module that has it: `name`, or `name=its name there`.
_PLACES = {
    # errors
    "livegrad.diagnostics": """
        CompileError DifferentiationError FileError KernelCheckError LivegradError MissingFileError ParseError
        TypeRuleError UsageError VerifyError""",
    # the value IR
    "livegrad": "ops",
    "livegrad.ir": "types",
    "livegrad.ir.types": """
        Array bf16 bool_ c128 c64 f16 f32 f64 i16 i32 i64 i8 Matrix Struct Tuple u16 u32 u64 u8 Vector""",
    "livegrad.ir.dimension": "Dimension",
    "livegrad.ir.node": "Function Node",
    "livegrad.ir.function": "trace",
    "livegrad.ir.leaves": "constant",
    "livegrad.ir.text": "parse_function print_function",
    "livegrad.ops.control": "map_over",
    # running it
    "livegrad.runtime.cpu": "compile=compile_function",
    "livegrad.runtime.reference": "evaluate",
    # the live engine
    "livegrad.live.blocks": """
        append_block AppendBlock block captured_block cuda_block edit fold_neighbours GradientBlock load_cuda_block
        neighbour_block NeighbourBlock neighbours watch watch_cuda""",
    "livegrad.live.recording": "Difference record Recording Replay replay",
    "livegrad.live.graph.append_buffer": "AppendBuffer",
    "livegrad.live.engine": "Engine",
    "livegrad.live.frame": "EngineError Frame",
    "livegrad.live.graph.description": "Block Composite State",
    "livegrad.live.profile": "chrome_trace",
    "livegrad.live.graph.regions": "For If IfElse Switch While",
    "livegrad.live.graph.sources": "ExternalBuffer",
    "livegrad.live.update.diff_plans": "Level",
    "livegrad.lazy.lazy_values": "reset_stats set_cache_budget stats",
    # lazy tensors
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
    "livegrad.tensors.pytrees": "tree_map",
    "livegrad.tensors.vmapping": "hessian jacfwd jacrev vmap",
    "livegrad.tensors.namespace": """
        __array_api_version__ __array_namespace_info__ abs acos acosh add all any arange argmax argmin argsort
        asarray asin asinh astype atan atan2 atanh bfloat16 bitwise_and bitwise_invert bitwise_left_shift bitwise_or
        bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_shapes broadcast_to can_cast ceil clip
        complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide
        e einsum empty empty_like equal erf exp expand_dims expm1 eye fft finfo flip float16 float32 float64 floor
        floor_divide fmod from_dlpack full full_like gelu greater greater_equal hypot iinfo imag inf int16 int32 int64
        int8 isdtype isfinite isin isinf isnan less less_equal linalg linspace log log10 log1p log2 log_softmax
        logaddexp logical_and logical_not logical_or logical_xor logsumexp matmul matrix_transpose max maximum mean
        meshgrid min minimum moveaxis multiply nan negative newaxis nextafter nn nonzero not_equal one_hot ones
        ones_like permute_dims pi positive pow prod random real reciprocal relu remainder repeat reshape result_type
        roll round searchsorted sigmoid sign signbit silu sin sinh softmax sort sqrt square squeeze stack std
        subtract sum take take_along_axis tan tanh tensordot tile top_k tril triu trunc uint16 uint32 uint64 uint8
        unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros zeros_like""",
    # captured functions
    "livegrad.frontend.function.captured": "function",
    "livegrad.frontend.function.function_library": """
        bounded clamp copy cross detach determinant dot fract inverse length mix normalize select smoothstep step
        unroll""",
    "livegrad.frontend.function.printing": "print=print_values",
    "livegrad.frontend.function.function_errors": "FunctionError",
    "livegrad.frontend.function.python_source": "run_source",
    "livegrad.frontend.differentiable": """
        bwd_diff dadd Derivative derivative_member Differentiable differentiable DifferentiableFunction dmul dzero
        fwd_diff interface NullDifferential prefer_checkpoint prefer_recompute remember_at_most""",
    "livegrad.frontend.differentiable.annotations": """
        array dmat2 dmat3 dmat4 dvec2 dvec3 dvec4 ivec2 ivec3 ivec4 mat mat2 mat3 mat4 no_diff Pair pair tensor vec
        vec2 vec3 vec4""",
    # contexts
    "livegrad.contexts": """
        CacheLimits Context context context_function context_node context_tensor ContextError ContextGraph DiskCache
        Extract ExtractAll Inject Modify NodeContext register_feature Scoped tensor_function""",
    # assemblies, parts and files
    "livegrad.implicit": """
        add_expression add_ir_function Assembly assembly_of_part AssemblyError BeamLattice BuildItem draw_plane
        fit_bounds FunctionBuilder ImageStack LevelSet lower_function_gradient mesh Part part_of_function parts
        PartWarning PortType render shapes Slice slice=slice_part to_cuda to_function to_opencl TriangleMesh
        VolumeChannel VolumeData""",
    "livegrad.implicit.formats": """
        FormatError FormatWarning load_3mf load_stl load_vm save_3mf save_animation save_mesh save_png save_stl
        save_svg""",
}

_NAMES: dict[str, tuple[str, str]] = {}  # public name → module, its name there
for _place, _words in _PLACES.items():
    for _word in _words.split():
        _public, _, _own = _word.partition("=")
        _NAMES[_public] = (_place, _own or _public)

_MADE_BY_USERS = {  # places of classes that programs make objects of; those of the IR are made too often to be wrapped
    "livegrad.contexts", "livegrad.implicit", "livegrad.live.engine", "livegrad.live.graph.append_buffer",
    "livegrad.live.graph.description", "livegrad.live.graph.regions", "livegrad.tensors.tensor_graph",
}  # fmt: skip

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Loads a public name, as `from its.place import name` would, and keeps it."""
    if name not in _NAMES:
        what = f"module 'livegrad' has no attribute '{name}'"
        if (found := import_module("livegrad.diagnostics.other_names").name_of_function(name)) is not None:
            what += f"; write {found}"
        raise AttributeError(what, name=name, obj=import_module(__name__))
    place, own = _NAMES[name]
    module = import_module(place)
    if not hasattr(module, own):
        import_module(f"{place}.{own}")
    explain_calls = import_module("livegrad.diagnostics.explain_calls").explain_calls
    explain_calls(module, [own])
    value = globals()[name] = getattr(module, own)
    if isinstance(value, ModuleType) and own != "types":
        explain_calls(value, value.__all__)
        for made in (getattr(value, inner) for inner in value.__all__ if own in ("optim", "shapes")):
            if isinstance(made, type):
                explain_calls(made, ["__init__"])
    elif isinstance(value, type) and place in _MADE_BY_USERS:
        explain_calls(value, ["__init__"])
        if place == "livegrad.implicit" or name == "ContextGraph":  # those of engines are called too often
            explain_calls(value, [method for method in dir(value) if not method.startswith("_")])
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
