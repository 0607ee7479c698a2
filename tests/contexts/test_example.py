"""The animated drawing under `examples/` draws what it says, and computes what moves."""

from examples.animated_drawing import FLOWERS, build


def test_the_drawing_computes_still_parts_once_and_flowers_for_each_position_of_the_wind():
    program = build().compile("lake", root=["animation_time", "footprint", "real_time"])
    pictures = [
        program.evaluate(animation_time=frame / 24, footprint=(48, 30), real_time=float(frame)) for frame in range(12)
    ]
    assert {picture.shape for picture in pictures} == {(40, 48, 3)}
    report = program.report()
    assert [report[name].counts.computed for name in ("grid", "paper", "hills", "columns")] == [1, 1, 1, 1]
    assert report["flower"].counts.computed % FLOWERS == 0
    assert report["flower"].counts.computed < 12 * FLOWERS
    before = report.computed
    program.evaluate(animation_time=0.0, footprint=(48, 30), real_time=1e9)
    assert program.report().computed == before
