"""Edits of assemblies: each returns a new assembly, and invalid edits are rejected with the reason."""

import pytest

import livegrad as lg
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType, Reference
from livegrad.implicit.nodes.resources import LevelSet, TriangleMesh

SCALAR, VECTOR, MATRIX = PortType.SCALAR, PortType.VECTOR, PortType.MATRIX


def sphere() -> Assembly:
    empty = Assembly().add_function("sphere", {"pos": VECTOR, "radius": SCALAR}, {"shape": SCALAR})
    assembly = empty.add_node("sphere", "Length", "distance", A="inputs.pos")
    assembly = assembly.add_node("sphere", "Subtraction", "offset", A="distance.result", B="inputs.radius")
    return assembly.link("sphere", "offset.result", "outputs.shape")


def test_an_edit_does_not_change_the_old_assembly() -> None:
    before = sphere()
    after = before.remove_node("sphere", "offset")
    assert before == sphere()
    assert "offset" in before.graph("sphere").nodes
    assert "offset" not in after.graph("sphere").nodes
    assert after.problems()[0].message == "output `shape` is not connected"


def test_an_assembly_cannot_be_changed_in_place() -> None:
    assembly = sphere()
    with pytest.raises(TypeError):
        assembly.functions[7] = assembly.functions[1]  # type: ignore[index]
    with pytest.raises(TypeError):
        assembly.graph("sphere").nodes["offset"].inputs["A"] = 1.0  # type: ignore[index]


def test_unchanged_functions_are_shared_between_versions() -> None:
    before = sphere().add_function("other")
    after = before.rename_function("other", "another")
    assert after.functions[1] is before.functions[1]


def test_ids_do_not_change_when_functions_are_removed() -> None:
    assembly = sphere().add_function("second").add_function("third")
    assert assembly.function("third").id == 3
    removed = assembly.remove_function("second")
    assert removed.function("third").id == 3
    assert removed.add_function("fourth").function("fourth").id == 4


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda a: a.link("sphere", "inputs.pos", "offset.A"), "a vector cannot be connected to a scalar"),
        (lambda a: a.link("sphere", "offset.result", "distance.A"), "a scalar cannot be connected to a vector"),
        (lambda a: a.link("sphere", "nothing.result", "offset.A"), "there is no node `nothing`"),
        (lambda a: a.link("sphere", "distance.shape", "offset.A"), "node `distance` has no output `shape`"),
        (lambda a: a.link("sphere", "inputs.size", "offset.A"), "the function has no input `size`"),
        (lambda a: a.link("sphere", "inputs.radius", "offset.C"), "has no input `C`"),
        (lambda a: a.link("sphere", "inputs.radius", "outputs.volume"), "the function has no output `volume`"),
        (lambda a: a.link("sphere", "inputs", "offset.A"), "invalid reference"),
        (lambda a: a.link("sphere", [1.0, 2.0], "distance.A"), "not a vector"),
        (lambda a: a.link("sphere", float("nan"), "offset.B"), "not a scalar"),
        (lambda a: a.add_node("sphere", "Sum"), "no node type `Sum`"),
        (lambda a: a.add_node("sphere", "Length", "distance"), "node `distance` already exists"),
        (lambda a: a.add_node("sphere", "Length", "a.b"), "not a valid name for a node"),
        (lambda a: a.add_node("sphere", "Length", "inputs"), "reserved for the ports of the function"),
        (lambda a: a.add_node("sphere", "Constant", "c"), "needs a value"),
        (lambda a: a.add_node("sphere", "Length", "c", value=1.0), "does not take a value"),
        (lambda a: a.add_node("sphere", "Length", "c", kind=VECTOR), "cannot have the kind"),
        (lambda a: a.add_node("sphere", "Sin", "c", kind=PortType.RESOURCE), "cannot have the kind"),
        (lambda a: a.remove_node("sphere", "nothing"), "has no node `nothing`"),
        (lambda a: a.retype_node("sphere", "offset", VECTOR), "this would break"),
        (lambda a: a.retype_input("sphere", "radius", VECTOR), "this would break"),
        (lambda a: a.remove_input("sphere", "radius"), "this would break"),
        (lambda a: a.add_input("sphere", "pos", SCALAR), "input `pos` already exists"),
        (lambda a: a.function("cube"), "no function `cube`"),
        (lambda a: a.add_function("sphere", id=1), "resource id 1 is taken"),
        (lambda a: a.set_value("sphere", "offset", 1.0), "does not take a value"),
        (lambda a: a.describe_node("sphere", "offset", colour="red"), "unknown node attribute"),
        (lambda a: a.build(99), "no resource 99"),
    ],
)
def test_invalid_edits_are_rejected(edit, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssemblyError, match=message):
        edit(sphere())


def test_errors_name_the_line_of_the_edit() -> None:
    with pytest.raises(AssemblyError) as caught:
        sphere().link("sphere", "inputs.pos", "offset.A")
    assert "test_editing.py" in str(caught.value)


def test_link_cycles_are_rejected() -> None:
    assembly = sphere().add_node("sphere", "Sin", "wave", A="offset.result")
    with pytest.raises(AssemblyError, match="form a cycle"):
        assembly.link("sphere", "wave.result", "offset.A")
    with pytest.raises(AssemblyError, match="form a cycle"):
        assembly.link("sphere", "wave.result", "wave.A")


def test_call_cycles_are_rejected() -> None:
    assembly = sphere().add_function("main", {"pos": VECTOR}, {"shape": SCALAR}, id=5)
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1, pos="inputs.pos", radius=1.0)
    with pytest.raises(AssemblyError, match="would call itself"):
        assembly.add_node("sphere", "FunctionCall", "back", functionID=5)
    assembly = assembly.add_node("sphere", "ResourceId", "which", value=1)
    with pytest.raises(AssemblyError, match="would call itself"):
        assembly.add_node("sphere", "FunctionCall", "again", functionID="which.value")
    pending = assembly.set_value("sphere", "which", 7).add_node(
        "sphere", "FunctionCall", "later", functionID="which.value"
    )
    with pytest.raises(AssemblyError, match="would call itself"):
        pending.set_value("sphere", "which", 5)


def test_a_call_has_the_ports_of_its_function() -> None:
    assembly = sphere().add_function("main", {"pos": VECTOR}, {"shape": SCALAR})
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1)
    assert assembly.inputs_of("main", "call") == {"functionID": PortType.RESOURCE, "pos": VECTOR, "radius": SCALAR}
    assert assembly.outputs_of("main", "call") == {"shape": SCALAR}
    assert [p.message for p in assembly.problems() if p.node == "call"] == [
        "input `pos` is not connected",
        "input `radius` is not connected",
    ]


def test_removing_a_called_function_needs_force() -> None:
    assembly = sphere().add_function("main", {"pos": VECTOR}, {"shape": SCALAR})
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1, pos="inputs.pos", radius=1.0)
    assembly = assembly.link("main", "call.shape", "outputs.shape")
    with pytest.raises(AssemblyError, match="is called by main"):
        assembly.remove_function("sphere")
    broken = assembly.remove_function("sphere", force=True)
    assert "function 1 does not exist" in [problem.message for problem in broken.problems()]
    with pytest.raises(AssemblyError, match="has problems"):
        broken.check()


def test_breaking_callers_needs_force() -> None:
    assembly = sphere().add_function("main", {"pos": VECTOR}, {"shape": SCALAR})
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1, pos="inputs.pos", radius=1.0)
    with pytest.raises(AssemblyError, match="function `main`, node `call`: input `size` is not connected"):
        assembly.add_input("sphere", "size", SCALAR)
    assert assembly.add_input("sphere", "size", SCALAR, force=True).problems()


def test_renaming_a_node_updates_its_links() -> None:
    renamed = sphere().rename_node("sphere", "distance", "length")
    assert renamed.graph("sphere").nodes["offset"].inputs["A"] == Reference("length", "result")
    assert not renamed.problems()
    assert renamed.rename_node("sphere", "length", "distance") == sphere()


def test_unlinking_causes_a_problem() -> None:
    assembly = sphere().unlink("sphere", "offset.B")
    assert [str(problem) for problem in assembly.problems()] == [
        "function `sphere`, node `offset`: input `B` is not connected"
    ]
    assert assembly.link("sphere", "inputs.radius", "offset.B") == sphere()


def test_removing_a_node_removes_the_links_from_it() -> None:
    assembly = sphere().remove_node("sphere", "distance")
    assert "A" not in assembly.graph("sphere").nodes["offset"].inputs


def test_names_positions_and_values_of_nodes_are_editable() -> None:
    assembly = sphere().add_node("sphere", "Constant", "c", value=2, position=(1.0, 2.0))
    assembly = assembly.set_value("sphere", "c", 3.5).describe_node(
        "sphere", "c", display_name="wall", position=(4.0, 5.0)
    )
    node = assembly.node("sphere", "c")
    assert (node.value, node.display_name, node.position) == (3.5, "wall", (4.0, 5.0))


def test_positions_of_nodes_do_not_affect_equality() -> None:
    assembly = sphere()
    assert assembly.describe_node("sphere", "offset", position=(9.0, 9.0)) == assembly


def test_the_kind_of_a_node_is_inferred_from_its_links() -> None:
    assembly = sphere().add_node("sphere", "Multiplication", "scaled", A="inputs.pos", B=[2, 2, 2])
    assert assembly.node("sphere", "scaled").kind is VECTOR
    assert assembly.retype_node("sphere", "scaled", VECTOR) == assembly


def test_outputs_are_added_and_removed() -> None:
    assembly = sphere().add_output("sphere", "length", SCALAR, "distance.result")
    assert assembly.graph("sphere").results["length"] == Reference("distance", "result")
    assert assembly.remove_output("sphere", "length") == sphere()
    with pytest.raises(AssemblyError, match="already"):
        assembly.add_output("sphere", "length", SCALAR)


def test_an_ambiguous_function_name_is_rejected() -> None:
    assembly = sphere().add_function("sphere")
    with pytest.raises(AssemblyError, match="2 functions are named `sphere`"):
        assembly.graph("sphere")
    assert assembly.graph(1).nodes


def test_ports_named_like_options_are_passed_in_a_mapping() -> None:
    assembly = add_expression(Assembly(), "odd", "value * kind", {"value": "scalar", "kind": "scalar"})
    assembly = assembly.add_function("main", {}, {"shape": SCALAR})
    assembly = assembly.add_node("main", "FunctionCall", "call", {"functionID": 1, "value": 2.0, "kind": 3.0})
    assembly = assembly.link("main", "call.shape", "outputs.shape")
    assert not assembly.problems()


def test_ten_thousand_nodes_are_checked_without_recursion() -> None:
    assembly = Assembly().add_function("chain", {"x": SCALAR}, {"y": SCALAR})
    graph = assembly.graph("chain")
    nodes = {}
    previous = Reference("inputs", "x")
    base = assembly.add_node("chain", "Sin", "n", kind=SCALAR).node("chain", "n")
    for index in range(10_000):
        node = base.with_input("A", previous)
        nodes[f"n{index}"] = type(node)(**{**vars(node), "identifier": f"n{index}"})
        previous = Reference(f"n{index}", "result")
    function = type(graph)(graph.id, graph.name, graph.inputs, graph.outputs, nodes, {"y": previous})
    assert not assembly.with_function(function).problems()


def called() -> Assembly:
    """A function, a function that calls it and takes its gradient, and a level set."""
    assembly = Assembly().add_function(
        "ball", {"pos": VECTOR, "radius": SCALAR}, {"shape": SCALAR, "size": SCALAR}, id=1
    )
    assembly = assembly.add_node("ball", "Length", "length", A="inputs.pos")
    assembly = assembly.add_node("ball", "Subtraction", "offset", A="length.result", B="inputs.radius")
    assembly = assembly.link("ball", "offset.result", "outputs.shape").link("ball", "inputs.radius", "outputs.size")
    assembly = assembly.add_function("main", {"pos": VECTOR}, {"shape": SCALAR, "slope": VECTOR}, id=2)
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1, pos="inputs.pos", radius=2.0)
    assembly = assembly.add_node(
        "main", "FunctionGradient", "g", functionID=1, step=0.1, pos="inputs.pos", radius=2.0,
        scalar_output="shape", vector_input="pos",
    )  # fmt: skip
    assembly = assembly.link("main", "call.shape", "outputs.shape").link("main", "g.gradient", "outputs.slope")
    assembly = assembly.add_resource(TriangleMesh.box((-3, -3, -3), (3, 3, 3)), id=8)
    return assembly.add_resource(LevelSet(2, "shape", 8, box_only=True), id=9).build(9)


def test_renaming_ports_updates_callers_gradients_and_level_sets() -> None:
    assembly = called()
    renamed = assembly.rename_input("ball", "pos", "place").rename_input("ball", "radius", "r")
    renamed = renamed.rename_output("ball", "shape", "distance").rename_output("main", "shape", "body")
    assert not renamed.problems()
    assert list(renamed.function("ball").inputs) == ["place", "r"]
    assert renamed.node("main", "g").vector_input == "place"
    assert renamed.node("main", "g").scalar_output == "distance"
    assert renamed.resources[9].channel == "body"  # type: ignore[union-attr]
    points = [[0.5, 1.0, 2.0], [3.0, -1.0, 0.0]]
    (before,), (after,) = parts(assembly), parts(renamed)
    assert before(points).tolist() == after(points).tolist()
    restored = renamed.rename_input("ball", "place", "pos").rename_input("ball", "r", "radius")
    assert restored.rename_output("ball", "distance", "shape").rename_output("main", "body", "shape") == assembly
    with pytest.raises(AssemblyError, match="output `size` already exists"):
        assembly.rename_output("ball", "shape", "size")
    with pytest.raises(AssemblyError, match="has no input `weight`"):
        assembly.rename_input("ball", "weight", "w")


def test_retyping_a_linked_output_needs_force() -> None:
    assembly = called()
    with pytest.raises(AssemblyError, match="this would break"):
        assembly.retype_output("ball", "shape", VECTOR)
    assert assembly.retype_output("ball", "shape", VECTOR, force=True).problems()
    unlinked = assembly.unlink("ball", "outputs.size").retype_output("ball", "size", VECTOR)
    assert unlinked.function("ball").outputs["size"] is VECTOR


def test_removing_a_used_resource_needs_force() -> None:
    assembly = called()
    with pytest.raises(AssemblyError, match="resource 8 is used by 9"):
        assembly.remove_resource(8)
    assert 8 not in assembly.remove_resource(8, force=True).resources
    without = assembly.remove_resource(9)
    assert without.items == ()
    assert not without.remove_resource(8).resources
    with pytest.raises(AssemblyError, match="no resource 99"):
        assembly.remove_resource(99)


def test_port_types_may_be_given_by_name() -> None:
    vector, scalar = PortType.VECTOR, PortType.SCALAR
    named = lg.Assembly().add_function("f", {"p": "vector"}, {"d": "scalar"}).add_input("f", "r", "scalar")
    typed = lg.Assembly().add_function("f", {"p": vector}, {"d": scalar}).add_input("f", "r", scalar)
    named, typed = named.add_output("f", "v", "vector"), typed.add_output("f", "v", vector)
    named = named.add_node("f", "Addition", "sum", kind="vector").retype_node("f", "sum", "scalar")
    typed = typed.add_node("f", "Addition", "sum", kind=vector).retype_node("f", "sum", scalar)
    assert named.graph("f") == typed.graph("f")
    for wrong in (lambda: lg.Assembly().add_function("f", {"p": "vektor"}), lambda: named.add_input("f", "q", "vec3")):
        with pytest.raises(AssemblyError, match=r"unknown port type.*expected 'scalar', 'vector', 'matrix'"):
            wrong()
    with pytest.raises(
        AssemblyError, match=r"not an assembly .*expected an Assembly, found str; pass it as the first argument"
    ):
        lg.implicit.FunctionBuilder("ball", {"pos": "vector"})  # type: ignore[arg-type,call-arg]
